"""Numbers and others' messages, in ours."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 1000
"""Characters of another library's message: more is a dump of what it was given."""

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that a terminal obeys or that change the order of what it shows, but for tab and newline."""


def visible(text: str, *, lines: bool = True) -> str:
    """A text in which characters that a terminal obeys are spelled out: ``\\x1b``; JSON stays what it says.

    ``lines`` off: a name, which has no lines.
    """
    shown = _CONTROLS.sub(_spelled, text)
    return shown if lines else shown.replace("\n", r"\n").replace("\t", r"\t")


def _spelled(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < ord(" ") else f"\\u{number:04x}"


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def cut(value: object, most: int = 80) -> str:
    """``repr`` of a value of somebody's file, shortened."""
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[:most]}…"


def some(names: Sequence[str], most: int = 20) -> str:
    """``a, b``; of many only the first ones, and how many more there are."""
    more = len(names) - most
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:most])} and {more:,} more"


def first_line(text: object) -> str:
    """The first line of a message, or of an error's; empty if it has none. A cut is marked by ``…``."""
    line = next(iter(str(text).strip().splitlines()), "").rstrip()
    if not line and isinstance(text, BaseException):
        line = type(text).__name__
    if len(line) <= LONGEST:
        return line
    return f"{line[:LONGEST].rsplit(' ', 1)[0]} …"
