"""The text of a config.pbtxt as the server's parser reads it, which is protobuf's for C++.

Protobuf's parser for Python takes what the server refuses (``1_000``, a no-break space, ``"\\q"``), and
refuses what the server takes (``- 1``). ``normalized`` raises on the former and rewrites the latter. Source:
protobuf's src/google/protobuf/io/tokenizer.cc, as text_format.cc sets it up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skip>(?:[ \t\v\f\r\n]+|\#[^\n]*)+)
      | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
      | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>[{}<>\[\]:;,./-])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"""\\(?:[abfnrtv\\?'"]|[0-7]|[xX][0-9a-fA-F]|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|(?P<bad>.))""",
    re.DOTALL,
)


_CONTROL = "Invalid control characters encountered in text."


@dataclass(frozen=True)
class Refusal(Exception):
    """What the server's parser does not take, at an offset of the text."""

    offset: int
    reason: str


def normalized(text: str) -> str:
    """The same message in a text that both parsers take; lines keep their numbers.

    Raises ``Refusal`` for what only protobuf's parser for Python would take.
    """
    return "".join(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    minus, before = "", ""
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "skip":
            if "\0" in token:
                raise Refusal(match.start() + token.index("\0"), _CONTROL)
            yield token
        elif token == "-":
            yield minus
            minus = "-"
        else:
            if reason := _refused(str(kind), token, before):
                raise Refusal(match.start(), reason)
            yield minus + token
            minus = ""
        before = str(kind)
    yield minus


def _refused(kind: str, token: str, before: str) -> str:
    if kind == "other":
        return _unexpected(token)
    if kind == "word" and before == "number":
        return "Need space between number and identifier."
    if kind == "number" and token[0] == "0" and re.fullmatch(r"0[0-9]*[89][0-9]*", token):
        return "Numbers starting with leading zero must be in octal."
    if kind == "string" and "\n" in token:
        return "String literals cannot cross line boundaries."
    if kind == "string" and "\\" in token and any(match["bad"] for match in _ESCAPE.finditer(token)):
        return "Invalid escape sequence in string literal."
    return ""


def _unexpected(character: str) -> str:
    if character in "\"'":
        return "Unexpected end of string."
    if character < " " or character == "\x7f":
        return _CONTROL
    shown = f"{character} (U+{ord(character):04X})" if character > "~" else character
    return f"Expected identifier, got: {shown}"
