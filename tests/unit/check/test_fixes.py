"""Corrections: the text that comes of them, and that what is not safe stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from triton_repo_builder import check, releases, repository
from triton_repo_builder.check import fixes
from triton_repo_builder.check.finding import Finding

MODEL = "class TritonPythonModel:\n    def execute(self, r): ...\n"
HEAD = 'backend: "python"\n'
IO = (
    'input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
)


def corrected(tmp_path: Path, text: str) -> str:
    (tmp_path / "m" / "1").mkdir(parents=True)
    file = tmp_path / "m" / "config.pbtxt"
    file.write_bytes(text.encode())
    (tmp_path / "m" / "1" / "model.py").write_text(
        "class TritonPythonModel:\n    def execute(self, r): ...\n"
    )
    read = repository.read(tmp_path)

    def judged(texts: Mapping[str, str]) -> list[Finding]:
        return check.check(read.with_texts(texts), releases.default())

    changed = fixes.correct({str(file): text}, judged)
    fixes.write(changed)
    return file.read_bytes().decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + IO, HEAD + IO),
        (HEAD + IO.replace("TYPE_FP32", "FP32"), HEAD + IO),
        (HEAD + IO.replace("TYPE_FP32", '"TYPE_FP32"'), HEAD + IO),
        (HEAD + IO.replace('"X"', "\u201cX\u201d").replace('"Y"', "\u201cY\u201d"), HEAD + IO),
        ("\ufeff" + HEAD + IO.replace(" data", "\u00a0data"), HEAD + IO),
        (HEAD.replace("python", "Python") + IO, HEAD + IO),
        (HEAD + 'name: "other"\n' + IO, HEAD + "\n" + IO),
        (HEAD + IO + "max_batch_size: -1\n", HEAD + IO + "max_batch_size: -1\n"),
    ],
)
def test_texts(tmp_path: Path, text: str, expected: str) -> None:
    assert corrected(tmp_path, text) == expected


def test_a_diff_applies_as_a_patch() -> None:
    assert fixes.diff("m/config.pbtxt", "a\nb", "a\nc\n") == (
        "--- a/m/config.pbtxt\n+++ b/m/config.pbtxt\n@@ -1,2 +1,2 @@\n a\n-b\n"
        "\\ No newline at end of file\n+c\n"
    )
