"""Names that a disk which ignores case would mix up."""

from __future__ import annotations

from pathlib import Path

import pytest
import serve_repository as made
from bad_repositories import findings


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def clashes(root: Path) -> list[tuple[str, str]]:
    return [
        (finding.where.removeprefix(f"{root}/"), finding.severity)
        for finding in findings(root)
        if finding.code == "case-clash"
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), []),
        (("README.md", "notes/a", "step/1/readme.md"), []),
        (("step/1/Model.py",), [("step/1/model.py", "error")]),
        (("step/1/data/A", "step/1/Data/a"), [("step/1/data", "error")]),
        (("step/1/Straße", "step/1/STRASSE"), [("step/1/Straße", "error")]),
        (("README.md", "readme.md", "Readme.md"), [("Readme.md", "warning"), ("readme.md", "warning")]),
        (("step/__pycache__/A", "step/__pycache__/a", ".git/X", ".git/x"), []),
    ],
)
def test_files_of_models_are_errors_and_others_warnings(
    tmp_path: Path, names: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    made.python(tmp_path, "step")
    put(tmp_path, *names)
    assert clashes(tmp_path) == expected


def test_two_models_are_one_error(tmp_path: Path) -> None:
    made.python(tmp_path, "step")
    made.python(tmp_path, "Step")
    assert clashes(tmp_path) == [("step", "error")]
