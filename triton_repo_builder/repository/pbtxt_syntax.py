"""A config.pbtxt in the syntax that both of protobuf's parsers take; the server's is the one for C++.

Protobuf's parser for Python takes what the server refuses (``1_000``, a no-break space, ``"\\q"``, ``-0`` for
a number without sign), and refuses what the server takes (``- 1``, ``01`` for true, ``"\\377"``).
``normalized`` raises on the former and rewrites the latter. Source: protobuf's tokenizer.cc, text_format.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from triton_repo_builder.repository.pbtxt_document import Document, Fields, Token, scan, tokens

_ESCAPE = re.compile(
    rb"""\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|([0-7]{1,3})|x([0-9a-fA-F]{1,2})
      |u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))""",
    re.DOTALL | re.VERBOSE,
)
_NAMED = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))
_SOUND_ESCAPE = r"""\\(?:[abfnrtv\\?'"]|[0-7]|x[0-9a-fA-F]|u[0-9a-fA-F]{4}|U00[01][0-9a-fA-F]{5})"""
_SOUND = {quote: re.compile(rf"(?:[^{quote}\\\n\0]+|{_SOUND_ESCAPE}){{0,4096}}") for quote in "\"'"}
"""A part of a string that the server takes."""
_OCTAL = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]+")
_CONTROL = "Invalid control characters encountered in text."
_FLOATS, _UNSIGNED, _PLAIN = (5, 6), (3, 4), (7, 8)
"""Numbers of ``cpp_type``: double and float, both unsigned integers, bool and enum."""
_LONG = 200
"""Blanks, comments and strings longer than this are kept from protobuf: 80 bytes for each character."""
_PLAIN_TOKENS = re.compile(
    rf"""(?:[ \t\r\n]{{1,{_LONG}}}(?![ \t\r\n]) | \#[^\n\0]{{0,{_LONG - 1}}}(?![^\n])
      | (?!(?i:inf|nan))[A-Za-z_][A-Za-z0-9_]* | (?:0|-?[1-9][0-9]*)(?![A-Za-z0-9_.])
      | "[^"\\\n\0]{{0,{_LONG - 2}}}" | [{{}}\[\]:,]){{0,4096}}""",
    re.VERBOSE,
)
"""Tokens that a normalized text keeps unchanged; no number is left before its last digit."""
_DECODED = 2**16
"""Characters of a string up to which its escapes are read: nothing longer is a name or a path."""


@dataclass(frozen=True)
class Refusal(Exception):
    """Syntax that the server's parser does not take, at an offset of the text."""

    offset: int
    reason: str


@dataclass(frozen=True)
class Normalized:
    """A text that both parsers take, with the strings that were taken out of it."""

    text: str
    mark: str
    strings: tuple[str, ...]

    def restored(self, text: str) -> str:
        """A value of the parsed message, or protobuf's error message, with the strings put back."""
        if not self.mark or self.mark not in text:
            return text
        return re.sub(f"{self.mark}([0-9]+){self.mark}", lambda match: self.strings[int(match[1])], text)

    def restored_in(self, value: Any) -> Any:
        """The plain values of a message with their strings."""
        if isinstance(value, str):
            return self.restored(value)
        if isinstance(value, list):
            return [self.restored_in(item) for item in value]
        if isinstance(value, dict):
            return {self.restored(key): self.restored_in(item) for key, item in value.items()}
        return value


def normalized(text: str, message: Any) -> Normalized:
    """Rewrite a text so that both parsers take it; lines keep their numbers.

    ``message`` is its descriptor. Raises ``Refusal`` for syntax that only protobuf's parser for Python takes.
    """
    mark = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in text)
    items, pieces = list(tokens(text)), []
    types = dict(_types(Document(text).fields, message))
    minus: Token | None = None
    before = ""
    for token in items:
        if refusal := _refusal(text, token, before):
            raise refusal
        before = token.kind
        if token.kind == "skip":
            pieces.append(_skipped(token.text))
            continue
        # A minus moves to what it is the sign of.
        piece = "" if token.text == "-" else _value(token, minus, types.get((minus or token).start))
        pieces.append(f"-{piece}" if minus else piece)
        minus = token if token.text == "-" else None
    strings = _take_out_strings(items, pieces, mark)
    return Normalized("".join(pieces) + ("-" if minus else ""), mark, strings)


def _take_out_strings(items: Sequence[Token], pieces: list[str], mark: str) -> tuple[str, ...]:
    """Replace long strings and strings with escapes by marks; consecutive strings share one."""
    strings: dict[str, int] = {}
    solid = [at for at, token in enumerate(items) if token.kind != "skip"]
    for kind, group in groupby(solid, key=lambda at: items[at].kind):
        row = {at: items[at].text for at in group}
        if kind != "string" or all("\\" not in text and len(text) <= _LONG for text in row.values()):
            continue
        # The server hands configurations on as JSON, which loses what is not UTF-8.
        value = b"".join(map(_bytes, row.values())).decode("utf-8", "ignore")
        written = f'"{mark}{strings.setdefault(value, len(strings))}{mark}"'
        for at, text in row.items():
            pieces[at] = pieces[at].removesuffix(text) + written.ljust(min(len(text), _LONG))
            written = ""
    return tuple(strings)


def _types(fields: Fields, message: Any) -> Iterator[tuple[int, int]]:
    """The ``cpp_type`` of each value, by its offset."""
    for field in fields:
        # Protobuf looks up no name that has no UTF-8.
        if field.name.isascii() and (descriptor := message.fields_by_name.get(field.name)):
            yield field.value_start, descriptor.cpp_type
            if descriptor.message_type:
                yield from _types(field.fields, descriptor.message_type)


def is_plain(text: str) -> bool:
    """Whether both parsers read every token alike, as in most files.

    They may still refuse the text, each with its own message and position.
    """
    at = 0
    while at < len(text):
        match = _PLAIN_TOKENS.match(text, at)
        if match is None or match.end() == at:
            return False
        at = match.end()
    return True


def _value(token: Token, minus: Token | None, kind: int | None) -> str:
    """A number, or a word, as protobuf's parser for Python takes it."""
    if kind in _FLOATS and token.kind == "word" and token.text.lower() not in ("inf", "infinity", "nan"):
        raise Refusal(token.start, f"Expected double, got: {token.text}")
    if kind in _UNSIGNED and minus and token.kind in ("number", "word"):
        raise Refusal(minus.start, "Expected integer, got: -")
    if kind in _PLAIN and _OCTAL.fullmatch(token.text):
        return str(int(token.text, 16 if token.text[1] in "xX" else 8)).ljust(len(token.text))
    return token.text


def _bytes(literal: str) -> bytes:
    """The bytes of a string: escapes may make up half a character, or none."""
    body = literal[1:-1].encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_escaped, body) if b"\\" in body and len(body) <= _DECODED else body


def _escaped(match: re.Match[bytes]) -> bytes:
    head, trail, octal, hexadecimal, short, long, other = match.groups()
    if octal or hexadecimal:
        return bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF])
    if other:
        return bytes([_NAMED.get(other[0], other[0])])
    code = int(short or long or b"0", 16)
    if head:
        code = 0x10000 + (int(head, 16) - 0xD800) * 0x400 + int(trail, 16) - 0xDC00
    return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else b"\xff"


def _skipped(text: str) -> str:
    """Blanks or a comment, shortened."""
    return text if len(text) <= _LONG else "\n" * text.count("\n") or " "


def _refusal(text: str, token: Token, before: str) -> Refusal | None:
    """The server's reason to refuse a token behind one of that kind; None if it does not."""
    at, reason = token.start, ""
    if token.kind == "skip" and "\0" in token.text:
        at, reason = at + token.text.find("\0"), _CONTROL
    elif token.kind == "string":
        at, reason = _broken(text, at)
    elif token.kind == "other" and (token.text < " " or token.text == "\x7f"):
        reason = _CONTROL
    elif token.kind == "other":
        shown = f"{token.text} (U+{ord(token.text):04X})" if token.text > "~" else token.text
        reason = f"Expected identifier, got: {shown}"
    elif token.kind == "word" and before == "number":
        reason = "Need space between number and identifier."
    elif token.kind == "number" and re.fullmatch(r"0[0-9]*[89][0-9]*", token.text):
        reason = "Numbers starting with leading zero must be in octal."
    return Refusal(at, reason) if reason else None


def _broken(text: str, start: int) -> tuple[int, str]:
    """Offset and reason of a refused string; an empty reason if it is not refused."""
    at = scan(_SOUND[text[start]], text, start + 1)
    character = text[at : at + 1]
    if character == text[start]:
        return at, ""
    if character == "\n":
        return at, "String literals cannot cross line boundaries."
    if character == "\\":
        return at + 1, "Invalid escape sequence in string literal."
    return at, "Unexpected end of string."
