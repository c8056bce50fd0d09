"""Numbers and others' messages, in ours."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 1000
"""Characters of another library's message: more is a dump of what it was given."""


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
