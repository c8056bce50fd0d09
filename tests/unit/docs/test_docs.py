"""The documents say what the code does."""

import re
from pathlib import Path

from triton_repo_builder.base.errors import Code, Exit

ROOT = Path(__file__).resolve().parents[3]


def test_every_exit_code_is_documented() -> None:
    table = (ROOT / "docs" / "errors.md").read_text()
    kinds = {
        kind: int(code) for kind, code in re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", table, re.MULTILINE)
    }
    assert kinds == {code.kind: int(code.exit) for code in Code}
    families = [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert families == [int(code) for code in Exit]


def test_links_between_documents_lead_somewhere() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "llms.txt")]
    documents = [*pages, *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{document.name}: {link}"
        for document in documents
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / link).exists()
    ]
    assert broken == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
