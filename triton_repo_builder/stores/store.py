"""What every kind of store offers, and what sending to one reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores.revision import Content

Progress = Callable[[str, int, int], None]
"""Receives what is done now, the bytes that are done and those of the whole."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What a push did; a dry run reports what it would do."""

    location: str
    """The pointer: what ``trb pull`` and ``trb serve`` take to get the current revision."""
    revision: str
    """``sha256:…``."""
    pinned: str
    """The same revision for ever, whatever is pushed later."""
    previous: str
    """The revision that was current; empty where there was none, or it cannot be read."""
    files: int
    bytes: int
    sent: tuple[str, ...]
    """What had to travel: files in a bucket, blobs in a registry. The rest was there and whole."""
    sent_bytes: int
    labels: dict[str, str]
    copied: tuple[str, ...] = ()
    """Files that the bucket itself copied from the revision before."""
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """What a pull brought."""

    location: str
    revision: str
    files: int
    bytes: int
    target: str
    changed: bool = True


class Store(Protocol):
    """A place that keeps revisions and a pointer to the current one."""

    def push(self, content: Content, progress: Progress, *, dry_run: bool = False) -> Pushed:
        """Send what is missing, verify what arrived, then move the pointer."""

    def pull(self, target: Path, progress: Progress) -> Pulled:
        """Write the revision's files below ``target``, an empty folder, each verified."""


def overtaken(where: str, now: str, pinned: str) -> TrbError:
    """Two pushes moved the pointer at the same moment, and the other one came last."""
    return TrbError(
        Code.STORAGE_FAILED,
        f"another push made {now or 'nothing'} the current revision at the same moment",
        where=where,
        remedy=f"run the same command again to make it this one: {pinned}, which is there and whole",
    )
