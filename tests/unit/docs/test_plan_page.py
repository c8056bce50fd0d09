"""The outputs on docs/plan.md are what the commands print."""

import re
from pathlib import Path

import pytest
from cli import call

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```console\n\$ trb (plan examples/[^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LEFT_OUT = "[…]"


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def shown() -> list[tuple[str, str]]:
    """(arguments, output) of each block whose files are in this checkout."""
    return BLOCK.findall((ROOT / "docs" / "plan.md").read_text())


def test_the_page_shows_three_outputs() -> None:
    assert len(shown()) == 3


@pytest.mark.parametrize(("arguments", "output"), shown())
def test_each_output_is_what_the_command_prints(arguments: str, output: str) -> None:
    printed = lines(call(*arguments.split(), cwd=ROOT).stdout)
    gap = False
    for line in lines(output):
        if line == LEFT_OUT:
            gap = True
            continue
        assert line in printed if gap else line == printed[0], line
        printed = printed[printed.index(line) + 1 :]
        gap = False
