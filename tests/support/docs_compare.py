"""Whether a command printed what a page shows: the shown text is a pattern, numbers are compared as numbers.

- ``…`` and ``[…]`` stand for any text, also of several lines; blanks and rules may be of any length.
- Digests, versions, dates, addresses, ports, times, sizes and process ids are those of one machine and run:
  any will do.
- Every other number must be close to the shown one, unless the page shows measurements (``measured``). Notes
  about a measurement, such as of a busy machine, may then come or not.
"""

from __future__ import annotations

import math
import re

_TOKENS = re.compile(
    r"(?P<gap>\[…\]|…)"
    r"|(?P<rule>[─═]{2,})"
    r"|(?P<bar>█+)"
    r"|(?P<blank>\s+)"
    r"|(?P<path>(?<!\S)/tmp/[\w/.-]+)"
    r"|(?P<digest>\b(?=[0-9a-f]*\d)(?=[0-9]*[a-f])[0-9a-f]{6,64}\b)"
    r"|(?P<date>\d{4}-\d{2}-\d{2}(?:[T ][\d:.]+Z?)?)"
    r"|(?P<epoch>\b1[5-9]\d{8}\b)"
    r"|(?P<address>\b(?:localhost|\d+\.\d+\.\d+\.\d+):\d+\b)"
    r"|(?P<version>\b\d+\.\d+\.\d+\b)"
    r"|(?P<measure>(?<![\w.])\d[\d.,]*(?= ?(?:ms|s|bytes|MB|GB|KB|K|M|G|per second|requests/s)\b))"
    r"|(?P<pid>(?<=\()\d{3,7}(?=\)$))"
    r"|(?P<steady>(?:no, ±\d+%|\byes)$)"
    r"|(?P<number>(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?!\w))",
    re.MULTILINE,
)
_ANY = {
    "gap": r"[\s\S]*?",
    "rule": r"[─═]+",
    "bar": r"█*",
    "blank": r"\s*",
    "path": r"\S+",
    "digest": r"[0-9a-f]+",
    "date": r"\d{4}-\d{2}-\d{2}(?:[T ][\d:.]+Z?)?",
    "epoch": r"\d{10}",
    "address": r"(?:localhost|\d+\.\d+\.\d+\.\d+):\d+",
    "version": r"\d+\.\d+\.\d+",
    "measure": r"[\d.,]+",
    "pid": r"\d+",
    "steady": r"(?:no, ±\d+%|yes)",
}
_NUMBER = r"(-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?)"
_NOTE = re.compile(r"^note: .*(?:other programs used|not stable after|no faster).*\n?", re.MULTILINE)
CLOSE = 2e-4


def difference(shown: str, printed: str, *, measured: bool = False) -> str:
    """Why a printed text is not what is shown; empty if it is."""
    if measured:
        shown, printed = (_NOTE.sub("", text) for text in (shown, printed))
    pattern, numbers = _pattern(shown.strip())
    match = re.fullmatch(rf"\s*{pattern}\s*", printed)
    if match is None:
        return f"shown:\n{shown.rstrip()}\nprinted:\n{printed.rstrip()}"
    if measured:
        return ""
    pairs = zip(numbers, match.groups(), strict=True)
    apart = [f"{one} is {other}" for one, other in pairs if not _close(one, other)]
    return f"{', '.join(apart)}\nshown:\n{shown.rstrip()}\nprinted:\n{printed.rstrip()}" if apart else ""


def _pattern(shown: str) -> tuple[str, list[str]]:
    """A regular expression, and the numbers that its groups must be close to."""
    parts, numbers, at = [], [], 0
    for token in _TOKENS.finditer(shown):
        parts.append(re.escape(shown[at : token.start()]))
        at = token.end()
        kind = token.lastgroup or ""
        if kind == "number":
            numbers.append(token[0])
        parts.append(_ANY.get(kind, _NUMBER))
    return "".join([*parts, re.escape(shown[at:])]), numbers


def _close(one: str, other: str) -> bool:
    try:
        left, right = (float(text.rstrip(",.").replace(",", "")) for text in (one, other))
    except ValueError:
        return one == other
    return math.isclose(left, right, rel_tol=CLOSE, abs_tol=CLOSE if "." in one else 0)
