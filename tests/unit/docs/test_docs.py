"""The documents say what the code does."""

import re
from pathlib import Path

from triton_repo_builder.errors import Exit

ROOT = Path(__file__).resolve().parents[3]


def test_every_exit_code_is_documented() -> None:
    table = (ROOT / "docs" / "errors.md").read_text()
    rows = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", table, re.MULTILINE)}
    assert rows == {code.name: int(code) for code in Exit}
