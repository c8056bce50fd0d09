"""Hand edits that ``trb accept`` recorded: a diff from the built text, which later builds apply again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONTEXT = 3
"""Unchanged lines around a change, as in ``diff -u``."""
FUZZ = 2
"""Outer lines of context that may differ if the rest occurs only once, as in ``patch``."""
_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@$")
_PARAMETER = re.compile(r'^parameters \{ key: "trb\.[^"]*"')


class Conflict(Exception):
    """A change whose surroundings are not in the new text."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


@dataclass(frozen=True, kw_only=True)
class Approval:
    """The person who accepted an edit, and the reason."""

    by: str
    why: str

    def __str__(self) -> str:
        name = self.by.partition(" <")[0] or self.by
        return f"{self.why} ({name})"


@dataclass(frozen=True, kw_only=True)
class Edit:
    """An accepted edit of one file of a version."""

    built: str
    """Hex sha256 of the file as ``trb`` built it; empty for a file that somebody added."""
    approvals: tuple[Approval, ...]
    """One for each ``trb accept`` with another name or reason, the newest last."""
    diff: tuple[str, ...] | None = None
    """Hunks of a unified diff from the built text; None if that text is unknown, or is not text."""

    @property
    def added(self) -> bool:
        """Whether ``trb`` built no such file."""
        return not self.built

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Edit:
        """Raises one of ``files.DAMAGED`` for a damaged entry."""
        diff = document.get("diff")
        if diff is not None and not (isinstance(diff, list) and all(isinstance(line, str) for line in diff)):
            raise TypeError("'diff' of an edit is not a list of lines")
        return cls(
            built=str(document.get("built", "")),
            approvals=tuple(
                Approval(by=str(each["by"]), why=str(each["why"])) for each in document["approvals"]
            ),
            diff=None if diff is None else tuple(diff),
        )

    def to_json(self) -> dict[str, Any]:
        built = {} if self.added else {"built": self.built}
        stated = {**built, "approvals": [vars(each) for each in self.approvals]}
        return {**stated, "diff": list(self.diff)} if self.diff is not None else stated

    def __str__(self) -> str:
        return "; ".join(map(str, self.approvals))


def difference(old: bytes | None, new: bytes) -> tuple[str, ...] | None:
    """Hunks of a unified diff; None if ``old`` is unknown, or if one of the two is not UTF-8 text."""
    if old is None:
        return None
    try:
        before, after = (text.decode("utf-8").split("\n") for text in (old, new))
    except UnicodeDecodeError:
        return None
    return tuple(difflib.unified_diff(before, after, lineterm="", n=CONTEXT))[2:]


def applied(diff: Sequence[str], text: bytes) -> bytes:
    """The text with the changes of a diff. Raises ``Conflict``, also if ``text`` is not UTF-8."""
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise Conflict(diff) from None
    result: list[str] = []
    done = shift = 0
    for start, hunk in _hunks(diff):
        place, head, tail = _place(hunk, lines, done, start - 1 + shift)
        result += lines[done:place]
        done = place
        for line in hunk[head : len(hunk) - tail]:
            if line[:1] == "+":
                result.append(line[1:])
                continue
            if line[:1] == " ":  # a comment or a digest may be another one
                result.append(lines[done])
            done += 1
        shift = place - head - (start - 1)
    return "\n".join((*result, *lines[done:])).encode()


def reverted(diff: Sequence[str], text: bytes) -> bytes:
    """The text without the changes of a diff. Raises ``Conflict``."""
    signs = {"+": "-", "-": "+"}
    return applied(
        [
            f"@@ -{match[2]} +{match[1]} @@"
            if (match := _HUNK.match(line))
            else f"{signs.get(line[:1], line[:1])}{line[1:]}"
            for line in diff
        ],
        text,
    )


def _hunks(diff: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Each hunk's first line in the old text, and its lines."""
    starts = [index for index, line in enumerate(diff) if _HUNK.match(line)]
    if diff and starts[:1] != [0]:
        raise Conflict(diff)
    for index, end in zip(starts, (*starts, len(diff))[1:], strict=True):
        match = _HUNK.match(diff[index])
        assert match is not None
        yield int(match[1]), list(diff[index + 1 : end])


def _place(hunk: Sequence[str], lines: Sequence[str], least: int, expected: int) -> tuple[int, int, int]:
    """The line of a hunk in ``lines``, and how many lines of context were left out at its head and tail.

    The nearest place to ``expected``. With fewer lines of context it must be the only one.
    """
    changed = [index for index, line in enumerate(hunk) if line[:1] != " "]
    if not changed:
        raise Conflict(hunk)
    before, after = changed[0], len(hunk) - 1 - changed[-1]
    for fuzz in range(FUZZ + 1):
        head, tail = max(0, min(fuzz, before - 1)), max(0, min(fuzz, after - 1))
        old = [line for line in hunk[head : len(hunk) - tail] if line[:1] != "+"]
        places = [
            place
            for place in range(least, len(lines) - len(old) + 1)
            if all(map(_fits, old, lines[place : place + len(old)]))
        ]
        if places and (not fuzz or len(places) == 1):
            return min(places, key=lambda place: abs(place - expected - head)), head, tail
    raise Conflict(hunk)


def _fits(line: str, actual: str) -> bool:
    """Whether a line of a hunk stands for this one: comments and ``trb.`` parameters around it may differ."""
    if line[:1] == "-":
        return line[1:] == actual
    return _unvaried(line[1:]) == _unvaried(actual)


def _unvaried(line: str) -> str:
    """A line without what differs between builds: measured reasons, digests of the model."""
    if parameter := _PARAMETER.match(line):
        return parameter[0]
    return "#" if line.lstrip().startswith("#") else line
