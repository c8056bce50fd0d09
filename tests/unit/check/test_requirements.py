"""``--modules``: which modules a list of packages brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check import requirements, settings


@pytest.mark.parametrize(
    ("line", "modules"),
    [
        ("scikit_learn>=1 ; python_version>'3'", {"sklearn"}),
        ("Pillow @ https://host/Pillow.whl", {"PIL"}),
        ("attrs", {"attr", "attrs"}),
        ("PyJWT[crypto]==2", {"jwt"}),
        ("Flask", {"Flask", "flask"}),
        ("ruamel.yaml", {"ruamel"}),
        ("cupy-cuda12x", {"cupy", "cupy_cuda12x"}),
        ("git+https://host/x.git#egg=sentence-transformers", {"sentence_transformers"}),
        ("--hash=sha256:00", set()),
        ("# a comment", set()),
        ("", set()),
    ],
)
def test_modules_of_a_requirement(line: str, modules: set[str]) -> None:
    assert requirements.modules(line) == modules


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_as_editors_and_powershell_write_it(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "base.txt").write_text("-r main.txt\nnumpy\n")
    (tmp_path / "main.txt").write_text("PyYAML==6\r\n-r base.txt\r\n-r nothere.txt\r\n", encoding=encoding)
    assert requirements.of_file(tmp_path / "main.txt") == {"yaml", "numpy"}


def test_what_is_no_file_of_requirements_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.txt").write_bytes(b"a\xff\xfe")
    with pytest.raises(TrbError, match="is no text") as error:
        settings.image((), ("weights.txt",), None, tmp_path)
    assert error.value.code is Code.USAGE
    with pytest.raises(TrbError, match="has not built"):
        settings.image((), ("a\0b:c",), None, tmp_path)


def test_a_name_too_long_for_any_file_is_a_module(tmp_path: Path) -> None:
    assert "x" * 5000 in settings.image((), ("x" * 5000,), None, tmp_path).modules
