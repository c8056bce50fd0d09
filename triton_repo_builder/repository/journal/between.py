"""The journal of ``trb apply``, which takes a repository through states between the old and the new one.

Each of them can be served, and the next apply goes on from it. None of them may be committed or pushed, or be
what another change starts from; so the journal stays where the process was killed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import MANIFEST
from triton_repo_builder.repository.journal import record, staging
from triton_repo_builder.repository.journal.record import ABSENT, Entry, Journal, Kind


def mark(stage: Path, endpoint: str, whole: Collection[str]) -> None:
    """Say that ``endpoint`` changes; ``whole``: the texts of manifest.json with which it is whole."""
    digests = tuple(hashlib.sha256(text.encode()).hexdigest() for text in whole)
    entry = Entry(path=MANIFEST, before=ABSENT, after=digests)
    record.begin(stage, Journal(kind=Kind.APPLY, entries=(entry,), endpoint=endpoint))


def is_whole(root: Path, journal: Journal) -> bool:
    """Whether the endpoint of a journal is in its old or its new state."""
    manifest = root / MANIFEST
    return manifest.is_file() and any(
        files.hash_file(manifest) in entry.after for entry in journal.entries if entry.path == MANIFEST
    )


def refuse(root: Path) -> None:
    """Raise APPLY_FAILED, or REPOSITORY_BUSY while the apply runs, if something is between two states."""
    for stage in staging.leftovers(root):
        journal = _of_apply(stage, root)
        if journal is None or is_whole(root, journal):
            continue
        with staging.locked(stage) as acquired:
            if not acquired:
                raise staging.busy(root, f"a trb apply is changing '{journal.endpoint}' now")
        raise TrbError(
            Code.APPLY_FAILED,
            f"a trb apply that was killed left '{journal.endpoint}' between two states; nothing was done",
            where=str(root),
            remedy="run the same trb apply again; or restore the folder (trb pull --force, git checkout) and "
            f"remove {stage}",
        )


def clear(root: Path, endpoint: str | None = None) -> None:
    """Remove the journals of earlier processes: the endpoint (None: each) is as it was asked for."""
    for stage in staging.leftovers(root):
        with contextlib.suppress(OSError, TrbError), staging.locked(stage) as acquired:
            journal = _of_apply(stage, root) if acquired else None
            if journal and (endpoint in (None, journal.endpoint) or is_whole(root, journal)):
                record.end(stage)


def _of_apply(stage: Path, root: Path) -> Journal | None:
    journal = record.read(stage, root)
    return journal if journal and journal.kind is Kind.APPLY else None
