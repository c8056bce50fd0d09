"""What README.md shows of ``make demo`` is what it prints, numbers aside."""

import os
import re
import sys
from pathlib import Path

import pytest

from triton_repo_builder.base import process

ROOT = Path(__file__).resolve().parents[2]


def masked(line: str) -> str:
    """Numbers and runs of blanks and rules say nothing about the form."""
    return re.sub(r"[\s─]+", " ", re.sub(r"\d[\d.e-]*", "#", line)).strip()


@pytest.mark.server
def test_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    shown = readme[readme.index("    ── build") :].partition("\n## ")[0]
    argv = [sys.executable, "-m", "triton_repo_builder", "demo", "--keep", str(tmp_path / ".demo")]
    printed = process.run(argv, env={**os.environ, "COLUMNS": "116"}, cwd=tmp_path, timeout=300)
    lines = {masked(line.replace(f"{tmp_path}/", "")) for line in printed.splitlines()}
    missing = [line for line in shown.splitlines() if masked(line) not in lines and line.strip() != "[…]"]
    assert missing == []
