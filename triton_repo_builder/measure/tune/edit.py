"""Change fields of a config.pbtxt in its text: every other line stays as it is, comments included."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.repository import pbtxt

WRITTEN = "# Written by trb."
OPENING, CLOSING = "{[", "}]"
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_KEY = re.compile(r"""key\s*:\s*["']([^"']*)["']""")
Raw = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Element:
    """A field at the top of the message, by its place in the text."""

    name: str
    begin: int
    end: int


def change(text: str, new: Raw, reason: str) -> str:
    """The text with the fields of ``new`` where they differ, each under the reason as a comment.

    Raises ``PbtxtError`` for a text that does not parse, and ``ValueError`` for one that cannot be edited so.
    """
    old = pbtxt.parse(text)
    wanted = pbtxt.plain(new)
    edited = text
    for field in (field for field in {**old, **wanted} if old.get(field) != wanted.get(field)):
        if field == "parameters":
            edited = _parameters(edited, old.get(field, {}), wanted.get(field, {}), reason)
        else:
            value = {field: wanted[field]} if field in wanted else {}
            edited = _replace(edited, field, "", value, reason)
    if pbtxt.parse(edited) != wanted:
        raise ValueError("the edited text does not say what it should")
    return edited


def _parameters(text: str, old: Raw, new: Raw, reason: str) -> str:
    for key in (key for key in new if old.get(key) != new[key]):
        text = _replace(text, "parameters", key, {"parameters": {key: new[key]}}, reason)
    return text


def _replace(text: str, field: str, key: str, value: Raw, reason: str) -> str:
    """Replace every element of a field, of ``parameters`` the one with this key; or add it at the end."""
    present = [
        element
        for element in elements(text)
        if element.name == field and (not key or _KEY.findall(text[element.begin : element.end]) == [key])
    ]
    lines = [f"# {reason}", *(line for _, line in pbtxt.elements(value))]
    if not value:
        lines[0] = f"# no {field}: {reason}"
    written = "\n".join(lines) + "\n"
    if not present:
        return text + ("" if text.endswith("\n") or not text else "\n") + written
    for element in reversed(present[1:]):
        text = text[: element.begin] + text[_line_end(text, element.end) :]
    first = present[0]
    begin = _reason_begin(text, first.begin) if WRITTEN in text else first.begin
    return text[:begin] + written + text[_line_end(text, first.end) :]


def _reason_begin(text: str, begin: int) -> int:
    """Where the comment directly above begins, which in a file of trb is the reason of what is replaced."""
    start = begin
    while start > 0:
        before = text.rfind("\n", 0, start - 1) + 1
        line = text[before : start - 1]
        if not line.startswith("#") or line.startswith(WRITTEN):
            break
        start = before
    return start


def _line_end(text: str, end: int) -> int:
    """Behind the separator, and the line break if nothing else is on the line."""
    while end < len(text) and text[end] in " \t,;":
        end += 1
    return end + 1 if text[end : end + 1] == "\n" else end


def elements(text: str) -> Iterator[Element]:
    """The fields at the top, each with its value."""
    position = 0
    while match := _next(text, position):
        name, begin = match.group(), match.start()
        position = _value_end(text, match.end())
        yield Element(name=name, begin=begin, end=position)


def _next(text: str, position: int) -> re.Match[str] | None:
    while position < len(text):
        if text[position] == "#":
            position = _comment_end(text, position)
        elif match := _NAME.match(text, position):
            return match
        else:
            position += 1
    return None


def _value_end(text: str, position: int) -> int:
    """Behind a scalar, or the bracket that closes a message or list."""
    depth, seen = 0, False
    while position < len(text):
        char = text[position]
        if char == "#":
            position = _comment_end(text, position)
            continue
        if char in "\"'":
            position, seen = _string_end(text, position), True
            if not depth:
                return position
            continue
        if char in OPENING:
            depth, seen = depth + 1, True
        elif char in CLOSING:
            depth -= 1
            if not depth:
                return position + 1
        elif not depth and seen and char in " \t\n,;":
            return position
        elif not char.isspace() and char != ":":
            seen = True
        position += 1
    return position


def _comment_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _string_end(text: str, position: int) -> int:
    quote, position = text[position], position + 1
    while position < len(text) and text[position] != quote:
        position += 2 if text[position] == "\\" else 1
    return position + 1
