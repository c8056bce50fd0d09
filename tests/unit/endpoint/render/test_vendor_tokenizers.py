from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.render import vendor_tokenizers

LIBRARY = b"\x7fELF\x02" + bytes(13) + b"\x3e\x00" + b"code"


def wheel(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_the_installed_library_is_complete() -> None:
    files = vendor_tokenizers.tokenizers("t/vendor")
    paths = [file.path for file in files]
    assert "t/vendor/tokenizers/__init__.py" in paths
    assert sum(path.endswith(".abi3.so") for path in paths) == 1
    assert not [path for path in paths if "__pycache__" in path]
    assert [path for path in paths if path.endswith(".dist-info/METADATA")]
    assert not [path for path in paths if path.endswith(("RECORD", "INSTALLER", "WHEEL"))]
    assert paths == [file.path for file in vendor_tokenizers.tokenizers("t/vendor")]


def test_a_wheel_is_unpacked_without_what_is_not_needed(tmp_path: Path) -> None:
    given = wheel(
        tmp_path / "w.whl",
        **{
            "tokenizers/__init__.py": b"x",
            "tokenizers/tokenizers.abi3.so": LIBRARY,
            "tokenizers/py.typed": b"",
            "tokenizers-1.dist-info/METADATA": b"Name: tokenizers",
            "tokenizers-1.dist-info/licenses/LICENSE": b"terms",
            "tokenizers-1.dist-info/RECORD": b"",
            "tokenizers/../../../etc/evil.py": b"",
        },
    )
    files = vendor_tokenizers.tokenizers("t", given)
    assert [(file.path, file.content) for file in files] == [
        ("t/tokenizers-1.dist-info/METADATA", b"Name: tokenizers"),
        ("t/tokenizers-1.dist-info/licenses/LICENSE", b"terms"),
        ("t/tokenizers/__init__.py", b"x"),
        ("t/tokenizers/tokenizers.abi3.so", LIBRARY),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a wheel: "),
        (b"no zip", "not a wheel: "),
        ({"tokenizers/__init__.py": b""}, "holds no abi3 library for Linux x86-64"),
        (
            {"tokenizers/t.abi3.so": LIBRARY.replace(b"\x3e", b"\xb7")},
            "holds no abi3 library for Linux x86-64",
        ),
    ],
)
def test_wheels_that_will_not_do(
    content: bytes | dict[str, bytes] | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.whl"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        wheel(path, **content)
    with pytest.raises(TrbError) as caught:
        vendor_tokenizers.tokenizers("t", path)
    assert caught.value.code == Code.USAGE
    assert caught.value.message.startswith(message)
