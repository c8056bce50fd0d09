"""The journal of a change: one sealed file in a staging folder, beside what the change moved or linked there.

It is on disk before the first file of the repository changes, and its removal is the last step: while it is
there the change has not ended, and ``recovery.py`` ends it if its process is gone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import seal

NAME = ".journal.json"
OLD = ".old"
"""Folder beside the journal: what was in the repository before, by its path there."""
WHOLE = "."
"""Path of the repository itself, in the journal of a swap that replaces all of it."""
ABSENT = ""
"""Fingerprint of a path where nothing is."""


class Kind(str, Enum):
    """How a change goes on, and what a kill in the midst of it leaves."""

    SWAP = "swap"
    """Whole folders and files are renamed (``swap.py``): half of it cannot be served."""
    EDIT = "edit"
    """Single files are written in place (``undo.py``)."""
    APPLY = "apply"
    """States follow each other, each of which can be served (``between.py``)."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One path of the repository that changes."""

    path: str
    before: str
    """Fingerprint of what was there, ``ABSENT`` or, of an apply, unknown."""
    after: tuple[str, ...]
    """Fingerprints of each content that the change may give it; empty if it is removed."""


@dataclass(frozen=True, kw_only=True)
class Journal:
    """A change that has begun."""

    kind: Kind
    entries: tuple[Entry, ...]
    """In the order of the change."""
    created: bool = False
    """The repository was not there before."""
    endpoint: str = ""
    """Endpoint that an apply changes."""


def begin(stage: Path, journal: Journal) -> None:
    """Write the journal into a marked staging folder; on disk when this returns. Raises ``TrbError``."""
    seal.write(stage, NAME, asdict(journal))


def end(stage: Path) -> None:
    """Remove the journal: the change is done, or undone, as a whole."""
    (stage / NAME).unlink(missing_ok=True)


def read(stage: Path, root: Path) -> Journal | None:
    """The journal of a staging folder of ``root``; None if there is none.

    Raises ``TrbError`` REPOSITORY_UNREADABLE if it is damaged or not sealed by this user's ``trb``, and
    DIGEST_MISMATCH for a path that leads out of the repository.
    """
    try:
        journal = _parsed(seal.read(stage, NAME))
        for entry in journal.entries:
            if (entry.path, journal.kind, len(journal.entries)) != (WHOLE, Kind.SWAP, 1):
                transfer.check_inside(entry.path, str(stage / NAME), root)
    except FileNotFoundError:
        return None
    except files.DAMAGED as error:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"a trb that was killed left a journal that is damaged: {type(error).__name__} {error}",
            where=str(stage),
            remedy="see what is in that folder, move back what you need, then remove it",
        ) from None
    return journal


def is_swap(stage: Path) -> bool:
    """Whether a swap has begun there and not ended: nobody may read the repository."""
    try:
        return _parsed(seal.read(stage, NAME)).kind is Kind.SWAP
    except (OSError, *files.DAMAGED):  # ended meanwhile; or ``read`` explains it
        return False


def _parsed(document: Any) -> Journal:
    """Raises one of ``files.DAMAGED``."""
    return Journal(
        kind=Kind(document["kind"]),
        entries=tuple(
            Entry(path=entry["path"], before=str(entry["before"]), after=tuple(map(str, entry["after"])))
            for entry in document["entries"]
        ),
        created=document["created"] is True,
        endpoint=str(document["endpoint"]),
    )
