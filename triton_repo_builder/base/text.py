"""Numbers and others' messages, in ours."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 1000
"""Characters of another library's message: a longer one is a dump of its input."""

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that a terminal obeys or that change the order of what it shows, but for tab and newline."""


def visible(text: str, *, lines: bool = True) -> str:
    """A text in which characters that a terminal obeys are spelled out: ``\\x1b``; JSON keeps its values.

    ``lines`` off: a name, which has no lines.
    """
    shown = _CONTROLS.sub(_spelled, text)
    return shown if lines else shown.replace("\n", r"\n").replace("\t", r"\t")


def _spelled(character: re.Match[str]) -> str:
    number = ord(character[0])
    return f"\\x{number:02x}" if number < ord(" ") else f"\\u{number:04x}"


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def cut(value: object, most: int = 80) -> str:
    """``repr`` of a value of somebody's file, shortened."""
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[:most]}…"


def some(items: Sequence[object], most: int = 20) -> str:
    """``a, b``; of many only the first ones, and how many more there are."""
    rest = len(items) - most
    return ", ".join(map(str, items[:most])) + (f" and {rest:,} more" if rest > 0 else "")


def first_line(text: object) -> str:
    """The first line of a message, or of an error's, and the lines that continue it; empty if it has none.

    A list or a code block that the line only announces is left out, with its announcement. A message that is
    too long ends with a sentence, or else in ``…``.
    """
    lines = [line.rstrip() for line in str(text).strip().splitlines()]
    line = lines[0] if lines else ""
    for continuation in lines[1:]:
        # Prose that is wrapped goes on with a small letter.
        if not continuation[:1].islower() or line.endswith((".", ":", ";")):
            break
        line += f" {continuation}"
    if not line and isinstance(text, BaseException):
        line = type(text).__name__
    if len(lines) > 1 and line.endswith(":") and ". " in line:
        line = line[: line.rindex(". ") + 1]
    return shortened(line, LONGEST)


def shortened(line: str, most: int) -> str:
    """A message of at most ``most`` characters: whole sentences, or words and ``…``."""
    if len(line) <= most:
        return line
    start = line[:most]
    if ". " in start:
        return start[: start.rindex(". ") + 1]
    return f"{start.rsplit(' ', 1)[0]} …"
