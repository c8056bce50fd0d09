"""A config.pbtxt as a document: tokens, fields with positions, and edits that keep all other bytes.

A text that does not parse has one too, with the fields that can be read. Tokens are those of
protobuf's tokenizer for C++ (tokenizer.cc). Values are read by ``pbtxt.parse``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\v\f\r\n]+|\#[^\n]*)
      | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>[{}<>\[\]:;,])
      | (?P<sign>[./-])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_STRING = {quote: re.compile(rf"(?:[^{quote}\\\n]+|\\.){{0,4096}}") for quote in "\"'"}
"""A part of a string: a repetition without a limit takes 100 bytes of memory for each escape."""
_LINE_END = re.compile(r"[ \t,;]*(?:\r?\n)?")
Span = tuple[int, int]
"""Offsets of the first character and behind the last."""


class Key(str):
    """A step of a path that picks the map entry with this key."""


Path = tuple[str | int, ...]


class Token(NamedTuple):
    """One token with its offset; ``kind`` is skip, string, number, word, mark, sign or other."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset behind the token."""
        return self.start + len(self.text)


def tokens(text: str) -> Iterator[Token]:
    """Every token, blanks and comments too: together they are the text. Strings end with their line."""
    at = 0
    while at < len(text):
        if quoted := _STRING.get(text[at]):
            end = scan(quoted, text, at + 1)
            token = Token("string", text[at : end + (text[end : end + 1] == text[at])], at)
        else:
            match = _TOKEN.match(text, at)
            assert match is not None  # the last alternative takes any character
            token = Token(str(match.lastgroup), match[0], at)
        yield token
        at = token.end


def scan(part: re.Pattern[str], text: str, at: int) -> int:
    """The offset behind consecutive matches of a pattern."""
    while (match := part.match(text, at)) and match.end() > at:
        at = match.end()
    return at


class Fields(list["Field"]):
    """The fields of one message, indexed by name."""

    @cached_property
    def by_name(self) -> dict[str, list[Field]]:
        """The fields of each name, in order; computed once all are there."""
        named: dict[str, list[Field]] = {}
        for item in self:
            named.setdefault(item.name, []).append(item)
        return named

    @cached_property
    def by_key(self) -> dict[tuple[str, str], Field]:
        """The first map entry of each field and key."""
        entries: dict[tuple[str, str], Field] = {}
        for item in self:
            if item.key:
                entries.setdefault((item.name, item.key), item)
        return entries

    def each(self, *path: str) -> Iterator[Field]:
        """All fields of a path."""
        for item in self.by_name.get(path[0], ()):
            if path[1:]:
                yield from item.fields.each(*path[1:])
            else:
                yield item

    def all(self) -> Iterator[Field]:
        """All fields, also those of messages inside."""
        for item in self:
            yield item
            yield from item.fields.all()


@dataclass
class Field:
    """One value of a field: a list has as many of them as elements."""

    name: str
    start: int
    """Offset of the name, or of the value for the second and further elements of a list."""
    value_start: int
    end: int
    statement: Span
    """From the name to the end of the value, or to the bracket that closes the list."""
    value: str = ""
    """A word, a number, or the inside of a string with its escapes; empty for a message."""
    fields: Fields = field(default_factory=Fields)

    @property
    def key(self) -> str:
        """The key of a map entry."""
        return next((inner.value for inner in self.fields.by_name.get("key", ())), "")


class Document:
    """The text of a config.pbtxt with its fields."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def fields(self) -> Fields:
        """The fields at the top."""
        try:
            return _Reader(self.text).fields()
        except RecursionError:  # nested far deeper than any message of protobuf's
            return Fields()

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def offset(self, line: int, column: int) -> int | None:
        """The offset of a line and column; None if there is no such line."""
        return self._lines[line - 1] + max(column - 1, 0) if 0 < line < len(self._lines) else None

    def find(self, path: Path) -> Field | None:
        """The field of a path such as ``("input", 1, "dims")``, or the innermost that exists on the way."""
        field, siblings, name = None, self.fields, ""
        for step in path:
            if isinstance(step, int):
                same = siblings.by_name[name]
                field = same[step] if step < len(same) else field
            elif isinstance(step, Key) and name:
                field, name = siblings.by_key.get((name, step), field), ""
            else:
                siblings = field.fields if field else siblings
                if step not in siblings.by_name:
                    break
                name, field = step, siblings.by_name[step][0]
        return field

    def statements(self, name: str, key: str = "") -> list[Span]:
        """Positions of a field at the top; with ``key``, of statements that hold this map entry alone."""
        keys: dict[Span, list[str]] = {}
        for item in self.fields.by_name.get(name, ()):
            keys.setdefault(item.statement, []).append(item.key)
        return [span for span, stated in keys.items() if not key or stated == [key]]

    def line_end(self, end: int) -> int:
        """The offset behind a separator, and behind the line break if nothing else is on the line."""
        match = _LINE_END.match(self.text, end)
        return match.end() if match else end

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> str:
        """The text with other characters in these spans (start, end, new)."""
        pieces, at = [], 0
        for start, end, new in sorted(edits):
            pieces += [self.text[at:start], new]
            at = end
        return "".join((*pieces, self.text[at:]))


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [token for token in tokens(text) if token.kind != "skip" and not token.text.isspace()]
        self.at = 0

    def fields(self) -> Fields:
        """The fields up to the bracket that closes their message."""
        fields = Fields()
        while self.at < len(self.tokens):
            token = self._next()
            if token.text in ("}", ">"):
                break
            if token.kind not in ("mark", "string"):
                fields += self._field(token.start, self._word_end(token))
        return fields

    def _field(self, start: int, end: int) -> list[Field]:
        name = self.text[start:end]
        self._accept(":")
        if not self._accept("["):
            return [self._value(name, start, end)]
        fields: list[Field] = []
        while self.at < len(self.tokens) and not self._accept("]"):
            if not self._accept(","):
                # The first element has the position of the field's name.
                fields.append(self._value(name, self.tokens[self.at].start if fields else start, end))
        statement = (start, self.tokens[self.at - 1].end)
        fields = fields or [Field(name, start, end, end, statement)]
        for item in fields:
            item.statement = statement
        return fields

    def _value(self, name: str, start: int, end: int) -> Field:
        if self.at == len(self.tokens):
            return Field(name, start, end, end, (start, end))
        first, value, fields = self._next(), "", Fields()
        if first.text in ("{", "<"):
            fields = self.fields()
            end = self.tokens[self.at - 1].end
        elif first.kind == "string":
            value, end = self._strings(first)
        else:
            end = self._word_end(first)
            value = self.text[first.start : end]
        return Field(name, start, first.start, end, (start, end), value, fields)

    def _strings(self, first: Token) -> tuple[str, int]:
        """The value of consecutive strings, without any that is not closed, and its end."""
        row = [first]
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "string":
            row.append(self._next())
        closed = [each.text[1:-1] for each in row if each.text[1:].endswith(each.text[0])]
        return "".join(closed), row[-1].end

    def _word_end(self, first: Token) -> int:
        """The end of adjacent tokens: a number with its sign, or text that protobuf refuses."""
        last = first
        while first.kind != "mark" and self.at < len(self.tokens):
            following = self.tokens[self.at]
            number = following.kind == "number" or following.text.lower() in ("inf", "infinity", "nan")
            if following.kind in ("mark", "string") or (
                following.start > last.end and not (number and last is first and first.text == "-")
            ):
                break
            last = self._next()
        return last.end

    def _next(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _accept(self, mark: str) -> bool:
        accepted = self.at < len(self.tokens) and self.tokens[self.at].text == mark
        self.at += accepted
        return accepted
