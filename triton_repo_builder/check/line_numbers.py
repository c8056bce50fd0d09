"""The line of each field in a config.pbtxt: protobuf keeps no positions once the text is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from triton_repo_builder.repository import text_tokens

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*) | (?P<string>["']) | (?P<mark>[{}<>\[\]:;,])
      | (?P<word>[^\s{}<>\[\]:;,"'\#]+)""",
    re.VERBOSE | re.DOTALL,
)


class Key(str):
    """A step of a path that picks the map entry with this key."""


Path = tuple[str | int, ...]


class Fields(list["Field"]):
    """The fields of one message, found by their name without a search."""

    @cached_property
    def by_name(self) -> dict[str, list[Field]]:
        """The fields of each name, in order; asked for once all are there."""
        named: dict[str, list[Field]] = {}
        for item in self:
            named.setdefault(item.name, []).append(item)
        return named

    @cached_property
    def by_key(self) -> dict[tuple[str, str], Field]:
        """The first map entry of each field and key."""
        entries: dict[tuple[str, str], Field] = {}
        for item in self:
            if key := _key(item):
                entries.setdefault((item.name, key), item)
        return entries


@dataclass
class Field:
    """One field of the text; of a message also the fields inside."""

    name: str
    line: int
    value: str = ""
    fields: Fields = field(default_factory=lambda: Fields())
    column: int = 0


def scan(text: str) -> Fields:
    """The fields of a text that protobuf accepts; on any other, as far as they make sense."""
    try:
        return _Reader(_tokens(text)).fields()
    except RecursionError:  # nested far deeper than any message of protobuf's
        return Fields()


def line(fields: Fields, path: Path) -> int | None:
    """The line of ``("input", 1, "dims")``, or of the innermost field of that path that exists."""
    found = find(fields, path)
    return found.line if found else None


def find(fields: Fields, path: Path) -> Field | None:
    """The field of that path, or the innermost on the way to it."""
    innermost, steps = None, list(path)
    while steps:
        name = str(steps.pop(0))
        same = fields.by_name.get(name)
        if not same:
            break
        pick = same[0]
        if steps and isinstance(steps[0], int):
            index = steps.pop(0)
            pick = same[index] if isinstance(index, int) and index < len(same) else pick
        elif steps and isinstance(steps[0], Key):
            pick = fields.by_key.get((name, str(steps.pop(0))), pick)
        innermost, fields = pick, pick.fields
    return innermost


def present(fields: Fields, path: tuple[str, ...]) -> bool:
    """Whether a field is written, even with its default value; protobuf does not keep this."""
    if not path:
        return True
    return any(present(item.fields, path[1:]) for item in fields.by_name.get(path[0], ()))


def _key(item: Field) -> str:
    return next((inner.value for inner in item.fields.by_name.get("key", ())), "")


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    column: int


def _tokens(text: str) -> Iterator[_Token]:
    at, row, begin = 0, 1, 0
    while match := _TOKEN.match(text, at):
        kind, end = str(match.lastgroup), match.end()
        if kind == "string":
            end = text_tokens.closing(text, at) + 1
            if end > len(text):
                break
        if kind != "skip":
            yield _Token(kind, text[at + 1 : end - 1] if kind == "string" else match[0], row, at - begin + 1)
        if kind in ("skip", "string") and (breaks := text.count("\n", at, end)):
            row += breaks
            begin = text.rindex("\n", at, end) + 1
        at = end


class _Reader:
    def __init__(self, tokens: Iterator[_Token]) -> None:
        self.tokens = list(tokens)
        self.at = 0

    def fields(self) -> Fields:
        """The fields up to the bracket that closes their message."""
        fields = Fields()
        while self.at < len(self.tokens):
            token = self._next()
            if token.text in ("}", ">") and token.kind == "mark":
                break
            if token.kind == "word":
                fields += self._field(token)
        return fields

    def _field(self, name: _Token) -> list[Field]:
        self._accept(":")
        if not self._accept("["):
            return [self._value(name, name)]
        fields: list[Field] = []
        while self.at < len(self.tokens) and not self._accept("]"):
            if not self._accept(","):
                # The first element has the position of the field's name.
                fields.append(self._value(name, self.tokens[self.at] if fields else name))
        return fields or [Field(name.text, name.line, column=name.column)]

    def _value(self, name: _Token, at: _Token) -> Field:
        if self._accept("{") or self._accept("<"):
            return Field(name.text, at.line, fields=self.fields(), column=at.column)
        value = ""
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "string":
            value += self._next().text
        if not value and self.at < len(self.tokens):
            value = self._next().text
        return Field(name.text, at.line, value, column=at.column)

    def _next(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _accept(self, mark: str) -> bool:
        following = self.tokens[self.at] if self.at < len(self.tokens) else None
        accepted = following is not None and following.kind == "mark" and following.text == mark
        self.at += accepted
        return accepted
