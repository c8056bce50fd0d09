"""Names and docstrings by their nouns: three kinds of riddle, counted; a count may only fall.

A docstring begins with the thing or the verb, never with a pronoun. A variable is called by its content, not
by its history. A line of Markdown has at most 130 characters.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "triton_repo_builder"
PRONOUNS = re.compile(
    r"(What|Those|That|Of|The same|As|Such|With what|Its|Each of|None of|Also|For what|By what)\b"
)
NAMES = {
    *("found", "made", "given", "known", "own", "told", "asked", "wanted", "have", "want", "apart"),
    *("there", "here", "again", "both", "one", "more", "all_", "these", "those", "what", "which"),
}
LONGEST = 130
CEILINGS = {
    "base": 0,
    "check": 0,
    "cli": 0,
    "endpoint": 0,
    "measure": 2,
    "model": 0,
    "produce": 0,
    "repository": 0,
    "run": 0,
    "runtime": 48,
    "ship": 0,
}
"""Riddles of each wing. Lower a number when you can; nobody raises one."""
LONG_LINES = 27
"""Long lines of README.md, CONTRIBUTING.md and docs/."""


def riddles(source: str) -> Iterator[tuple[int, str]]:
    """(line, docstring or name) of each riddle in a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if PRONOUNS.match(text.strip()):
                yield node.lineno, text.strip().partition("\n")[0]
            case ast.arg(arg=name) if name in NAMES:
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) if name in NAMES:
                yield node.lineno, name


def long_lines(page: str) -> Iterator[int]:
    """Numbers of the lines that are too long, outside of tables and of code."""
    fenced = False
    for number, line in enumerate(page.splitlines(), 1):
        fenced ^= line.startswith("```")
        if len(line) > LONGEST and not fenced and not line.startswith(("|", "    ")):
            yield number


def test_every_wing_has_a_ceiling() -> None:
    wings = {path.parent.name for path in PACKAGE.glob("*/") for path in path.glob("*.py")}
    assert CEILINGS.keys() == wings | {"runtime"}


@pytest.mark.parametrize("wing", CEILINGS)
def test_docstrings_and_names_begin_with_their_noun(wing: str) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((PACKAGE / wing).rglob("*.py"))
        for line, text in riddles(path.read_text())
    ]
    assert len(places) <= CEILINGS[wing], "\n".join(places)


def test_lines_of_markdown_are_short() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page for page in pages if page.parent.name != "rules"]  # made of check/examples
    places = [f"{page.relative_to(ROOT)}:{line}" for page in pages for line in long_lines(page.read_text())]
    assert len(places) <= LONG_LINES, "\n".join(places)


def test_a_riddle_is_seen() -> None:
    source = '''
def rows(given):
    """What the front takes."""
    found, names = given, [own for own in given]
    """The rows."""
'''
    assert sorted(text for _, text in riddles(source)) == ["What the front takes.", "found", "given", "own"]
    page = "x" * 131 + "\n```\n" + "x" * 131 + "\n```\n    " + "x" * 131 + "\n| " + "x" * 131 + " |\n"
    assert [*long_lines(page)] == [1]
