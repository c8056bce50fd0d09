"""Each rule's page and example; tests/integration/test_rules_are_true.py starts the examples on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import examples
from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.check import explain
from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.finding import Finding

PAGES = Path(__file__).parents[3] / "docs" / "rules"
SHOWN = [code for code in CODES if explain.example(code)]


def findings(files: dict[str, str], root: Path, release: str) -> list[Finding]:
    examples.lay_out(files, root)
    found = check.check(repository.read(root, lenient=True), releases.get(release))
    return [finding.relative_to(root) for finding in found]


@pytest.mark.parametrize("code", SHOWN)
def test_the_example_has_the_fault_and_its_twin_has_none(code: str, tmp_path: Path) -> None:
    example = explain.example(code)
    assert example is not None
    bad = findings(dict(example.bad), tmp_path / "bad", example.release)
    good = findings(dict(example.good), tmp_path / "good", example.release)
    assert example.says in [finding.message for finding in bad if finding.code == code]
    assert [str(finding) for finding in good if finding.code == code or finding.severity == "error"] == []


def test_only_what_no_file_can_show_has_no_example() -> None:
    assert {code for code in CODES if code not in SHOWN} == {
        "file-unreadable",
        "repository-empty",
        *(code for code in CODES if code.startswith(("live-", "manifest-"))),
    }


def test_the_pages_are_what_the_examples_say() -> None:
    """``make golden`` writes them."""
    assert {file.stem for file in PAGES.glob("*.md")} == set(CODES)
    assert [code for code in CODES if (PAGES / f"{code}.md").read_text() != explain.page(code)] == []


if __name__ == "__main__":
    explain.write(PAGES)
