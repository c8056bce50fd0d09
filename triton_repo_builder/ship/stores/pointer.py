"""The pointer of a bucket: which revision is current, which one was before, and when each became current."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.ship.stores.revision import DIGEST

LONGEST = 200
"""Number of moves that a pointer remembers."""


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """The current revision and its history; digests are in hex."""

    revision: str
    previous: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    history: tuple[tuple[str, str], ...] = ()
    """Revision and time (UTC, ISO 8601) of each move, the newest last."""

    @classmethod
    def read(cls, document: bytes) -> Pointer | None:
        """Parse a pointer; None if trb did not write it."""
        try:
            fields = load_json(document)
            revision = _hex(fields["revision"])
        except DAMAGED:
            return None
        history = fields.get("history")
        return cls(
            revision=revision,
            previous=_maybe(fields.get("previous")),
            history=tuple(
                (_maybe(move.get("revision")), str(move.get("time", "")))
                for move in (history if isinstance(history, list) else ())
                if isinstance(move, dict) and _maybe(move.get("revision"))
            ),
        )

    def moved(self, revision: str, labels: Mapping[str, str]) -> Pointer:
        """The pointer after this one."""
        return first(revision, labels, previous=self.revision, history=self.history)

    @property
    def pushed(self) -> dict[str, str]:
        """When each revision became current, the last time if it did more than once."""
        return dict(self.history)

    @property
    def document(self) -> bytes:
        """Bytes of the pointer in the bucket; ``path`` is for people and for a stock Triton."""
        document = {
            "schema": 1,
            "revision": f"sha256:{self.revision}",
            "path": f"revisions/{self.revision}",
            "previous": f"sha256:{self.previous}" if self.previous else None,
            "labels": dict(self.labels),
            "history": [{"revision": f"sha256:{digest}", "time": time} for digest, time in self.history],
        }
        return f"{json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)}\n".encode()


def first(
    revision: str, labels: Mapping[str, str], *, previous: str = "", history: tuple[tuple[str, str], ...] = ()
) -> Pointer:
    """A pointer that moves now."""
    moves = (*history, (revision, after(history[-1][1] if history else "")))[-LONGEST:]
    return Pointer(revision=revision, previous=previous, labels=labels, history=moves)


def after(before: str) -> str:
    """UTC now, ISO 8601 with microseconds; just after ``before`` if that is later.

    The clocks of two machines differ, two pushes may be in one second, and what became current later has to
    be later.
    """
    moment = datetime.now(timezone.utc)
    with suppress(ValueError, OverflowError):
        moment = max(
            moment, datetime.fromisoformat(before.replace("Z", "+00:00")) + timedelta(microseconds=1)
        )
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _hex(text: Any) -> str:
    match = DIGEST.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match[1]


def _maybe(text: Any) -> str:
    match = DIGEST.fullmatch(text) if isinstance(text, str) else None
    return match[1] if match else ""
