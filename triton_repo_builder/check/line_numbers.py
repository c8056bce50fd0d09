"""The line of each field in a config.pbtxt: protobuf keeps no positions once the text is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*) | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<mark>[{}<>\[\]:;,]) | (?P<word>[^\s{}<>\[\]:;,"'\#]+)""",
    re.VERBOSE | re.DOTALL,
)


class Key(str):
    """A step of a path that picks the map entry with this key."""


Path = tuple[str | int, ...]


@dataclass
class Field:
    """One field of the text; of a message also the fields inside."""

    name: str
    line: int
    value: str = ""
    fields: list[Field] = field(default_factory=list)


def scan(text: str) -> list[Field]:
    """The fields of a text that protobuf accepts; on any other, as far as they make sense."""
    try:
        return _Reader(_tokens(text)).fields()
    except RecursionError:  # nested far deeper than any message of protobuf's
        return []


def line(fields: list[Field], path: Path) -> int | None:
    """The line of ``("input", 1, "dims")``, or of the innermost field of that path that exists."""
    innermost, steps = None, list(path)
    while steps:
        name = steps.pop(0)
        same = [item for item in fields if item.name == name]
        if not same:
            break
        pick = same[0]
        if steps and isinstance(steps[0], int):
            index = steps.pop(0)
            pick = same[index] if isinstance(index, int) and index < len(same) else pick
        elif steps and isinstance(steps[0], Key):
            key = steps.pop(0)
            pick = next((item for item in same if _key(item) == key), pick)
        innermost, fields = pick.line, pick.fields
    return innermost


def present(fields: list[Field], path: tuple[str, ...]) -> bool:
    """Whether a field is written, even with its default value; protobuf does not keep this."""
    if not path:
        return True
    return any(present(item.fields, path[1:]) for item in fields if item.name == path[0])


def _key(item: Field) -> str:
    return next((inner.value for inner in item.fields if inner.name == "key"), "")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(text: str) -> Iterator[_Token]:
    at, row = 0, 1
    while match := _TOKEN.match(text, at):
        kind = str(match.lastgroup)
        if kind != "skip":
            yield _Token(kind, match[0][1:-1] if kind == "string" else match[0], row)
        row += match[0].count("\n")
        at = match.end()


class _Reader:
    def __init__(self, tokens: Iterator[_Token]) -> None:
        self.tokens = list(tokens)
        self.at = 0

    def fields(self) -> list[Field]:
        """The fields up to the bracket that closes their message."""
        fields: list[Field] = []
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
            return [self._value(name, name.line)]
        fields: list[Field] = []
        while self.at < len(self.tokens) and not self._accept("]"):
            if not self._accept(","):
                # The first element has the position of the field's name.
                fields.append(self._value(name, self.tokens[self.at].line if fields else name.line))
        return fields or [Field(name.text, name.line)]

    def _value(self, name: _Token, line: int) -> Field:
        if self._accept("{") or self._accept("<"):
            return Field(name.text, line, fields=self.fields())
        value = ""
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "string":
            value += self._next().text
        if not value and self.at < len(self.tokens):
            value = self._next().text
        return Field(name.text, line, value)

    def _next(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _accept(self, mark: str) -> bool:
        accepted = self.at < len(self.tokens) and self.tokens[self.at] == _Token(
            "mark", mark, self.tokens[self.at].line
        )
        self.at += accepted
        return accepted
