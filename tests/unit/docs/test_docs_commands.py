"""Every ``trb`` line that a document shows parses: the command exists and takes these options."""

import re
import shlex
from pathlib import Path

import click
import pytest

from triton_repo_builder.cli import COMMANDS, group

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md"]


def shown() -> list[tuple[str, str]]:
    """(document, command line) of each line in a code block that starts with trb, or follows a prompt."""
    lines = []
    for document in DOCUMENTS:
        pattern = r"^```.*?\n(.*?)^```|((?:^    .*\n)+)"
        blocks = re.findall(pattern, document.read_text(), re.MULTILINE | re.DOTALL)
        for fenced, indented in blocks:
            for line in (fenced or indented).splitlines():
                match = re.match(r"\s*(?:\$ )?(trb .*)", line)
                if match:
                    lines.append((document.name, match[1].split("  ")[0]))
    return lines


@pytest.mark.parametrize(("document", "line"), shown())
def test_command_lines_parse(document: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = words[: words.index("|")] if "|" in words else words
    if words[0] in ("--help", "--version"):
        return
    assert words[0] in COMMANDS, f"{document}: {line}"
    command = group.get_command(click.Context(group), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert f"trb {name}" in command.get_help(click.Context(command, info_name=name))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert f"`trb {name}" in (ROOT / "docs" / "commands.md").read_text()
