"""Tokens of protobuf's text format, as its tokenizer for C++ cuts them: tokenizer.cc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\v\f\r\n]+|\#[^\n]*)
      | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>[{}<>\[\]:;,./-])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = r"""\\(?:[abfnrtv\\?'"]|[0-7]|x[0-9a-fA-F]|u[0-9a-fA-F]{4}|U00[01][0-9a-fA-F]{5})"""
_BODIES = {quote: re.compile(rf"(?:[^{quote}\\\n\0]+|{_ESCAPE}){{0,4096}}") for quote in "\"'"}
"""A part of a string: a repetition without a limit takes 100 bytes of memory for each escape."""
_ANY = {quote: re.compile(rf"(?:[^{quote}\\]+|\\.){{0,4096}}", re.DOTALL) for quote in "\"'"}


class Token(NamedTuple):
    """One token with its place; ``kind`` is skip, string, number, word, mark or other."""

    kind: str
    text: str
    start: int
    reason: str = ""
    """Why the server refuses the literal."""
    reached: int = 0
    """Characters of it that were read before that."""

    @property
    def fault(self) -> int:
        """The offset of what is wrong with it."""
        return self.start + (self.reached or (self.text.find("\0") if self.kind == "skip" else 0))


def tokens(text: str) -> Iterator[Token]:
    """Every token, blanks and comments too: together they are the text."""
    at, end = 0, len(text)
    while at < end:
        if text[at] in _BODIES:
            close = _scan(_BODIES[text[at]], text, at + 1)
            sound = text[close : close + 1] == text[at]
            reason, further = ("", 0) if sound else _broken(text[close : close + 1])
            yield Token("string", text[at : close + sound], at, reason, 0 if sound else close + further - at)
            at = close + 1
            continue
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative takes any character
        yield Token(str(match.lastgroup), match[0], at)
        at = match.end()


def closing(text: str, at: int) -> int:
    """Where the string that begins there ends, whatever is in it; the end of the text if it does not."""
    return _scan(_ANY[text[at]], text, at + 1)


def _scan(part: re.Pattern[str], text: str, at: int) -> int:
    while match := part.match(text, at):
        if match.end() == at:
            break
        at = match.end()
    return at


def _broken(character: str) -> tuple[str, int]:
    """Why a string ends at that character, and whether the reason is the next one."""
    if character == "\n":
        return "String literals cannot cross line boundaries.", 0
    if character == "\\":
        return "Invalid escape sequence in string literal.", 1
    return "Unexpected end of string.", 0
