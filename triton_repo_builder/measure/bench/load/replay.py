"""A recorded log to send again: JSON lines, each with the time of a request and its text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError

REMEDY = (
    'write a JSON object per line: {"at": 12.5, "text": "..."}; at in seconds, or as 2024-10-01T12:00:00Z'
)
LONGEST = 7 * 86_400
"""Longest log in seconds; a longer one has other units, or times of something else than requests."""
MANY = 36_525


@dataclass(frozen=True, kw_only=True)
class Log:
    """Requests in the order of their times."""

    texts: tuple[str, ...]
    """Every different text once; empty if the log has only times."""
    arrivals: tuple[tuple[float, int], ...]
    """Seconds since the first request, and the number of the text; without texts, of the request."""

    @property
    def seconds(self) -> float:
        """From the first request to the last, and the mean gap after it."""
        last = self.arrivals[-1][0]
        return last + last / max(1, len(self.arrivals) - 1) if last else 1.0

    @property
    def rate(self) -> float:
        """Requests per second in the mean."""
        return len(self.arrivals) / self.seconds


def read(path: Path) -> Log:
    """Raises ``TrbError`` NOT_FOUND, USAGE with the line."""
    try:
        # Not splitlines(): a text may hold characters that it takes for the end of a line.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise files.unreadable(path, error) from None
    except UnicodeDecodeError:
        raise TrbError(Code.USAGE, "is not UTF-8 text", where=str(path), remedy=REMEDY) from None
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append(_entry(files.load_json(line)))
        except files.DAMAGED as error:
            raise TrbError(Code.USAGE, f"line {number}: {error}", where=str(path), remedy=REMEDY) from None
    if not entries:
        raise TrbError(Code.USAGE, "holds no request", where=str(path), remedy=REMEDY)
    if len({text is None for _, text, _ in entries}) > 1:
        raise TrbError(Code.USAGE, "only some lines have a text", where=str(path), remedy=REMEDY)
    if len({local for *_, local in entries}) > 1:
        message = "only some times say their time zone, so that they cannot be told apart"
        raise TrbError(Code.USAGE, message, where=str(path), remedy=REMEDY)
    entries.sort(key=lambda entry: entry[0])
    first = entries[0][0]
    if entries[-1][0] - first > LONGEST:
        days = (entries[-1][0] - first) / 86_400
        raise TrbError(
            Code.USAGE,
            f"is a log of {days:,.0f} days, which would take as long to send"
            if days < MANY
            else "has times that are more than a century apart",
            where=str(path),
            remedy="send a part of it; 'at' is seconds, not milliseconds",
        )
    numbers: dict[str, int] = {}
    arrivals = tuple(
        (at - first, number if text is None else numbers.setdefault(text, len(numbers)))
        for number, (at, text, _) in enumerate(entries)
    )
    return Log(texts=tuple(numbers), arrivals=arrivals)


def _entry(document: Any) -> tuple[float, str | None, bool]:
    """Time, text, and whether the time is one of this machine's own time zone. Raises ``files.DAMAGED``."""
    if not isinstance(document, dict) or "at" not in document:
        raise ValueError("not an object with 'at'")
    at, text, local = document["at"], document.get("text"), False
    if isinstance(at, str):
        moment = datetime.fromisoformat(at.replace("Z", "+00:00"))
        at, local = moment.timestamp(), moment.tzinfo is None
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not math.isfinite(at):
        raise ValueError(f"'at' is {at!r:.40}, not a time")
    if text is not None and not isinstance(text, str):
        raise ValueError(f"'text' is {text!r:.40}, not a text")
    return float(at), text, local
