"""Sections of docs/reliability.md that scripts write, each between two HTML comments."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def commit() -> str:
    """Of the code that is run, ``-dirty`` if git has it not so; the page that a run writes is no code."""
    named, dirty = (
        subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for argv in (
            ["git", "rev-parse", "--short", "HEAD"],
            ["git", "status", "--porcelain", "--", "triton_repo_builder", "tests"],
        )
    )
    return f"{named}-dirty" if dirty else named


def section(file: Path, name: str, text: str) -> None:
    """Replace what lies between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``, or add it at the end."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    document = file.read_text(encoding="utf-8")
    block = f"{begin}\n{text.strip()}\n{end}"
    if begin not in document:
        file.write_text(f"{document.rstrip()}\n\n{block}\n", encoding="utf-8")
        return
    before, _, rest = document.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{file}: no {end}")
    file.write_text(f"{before}{block}{after}", encoding="utf-8")
