"""The swap of staged folders into a repository, and its undoing at once or after a kill.

Each rename is one step of the file system, so the journal and the places of the folders show how far a swap
came.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files, transfer
from triton_repo_builder.repository.journal import record
from triton_repo_builder.repository.journal.record import ABSENT, OLD, WHOLE, Entry, Journal, Kind

NEW = "new"
"""Name in the staging folder of what replaces the whole repository."""
_PRESENT = "present"


@dataclass(frozen=True, kw_only=True)
class Swap:
    """A swap as its journal and the places of the folders show it."""

    stage: Path
    root: Path
    journal: Journal

    @property
    def begun(self) -> bool:
        """Whether anything was moved."""
        return any(self._moved_out(entry) or self._moved_in(entry) for entry in self.journal.entries)

    @property
    def complete(self) -> bool:
        """Whether everything was moved."""
        return all(
            self._moved_in(entry) if entry.after else self._moved_out(entry)
            for entry in self.journal.entries
            if entry.before or entry.after
        )

    def run(self) -> None:
        """All renames, in order. Raises ``OSError`` if one fails."""
        (self.stage / OLD).mkdir()
        if not self._is_whole():
            self.root.mkdir(parents=True, exist_ok=True)
        for entry in self.journal.entries:
            place = self.root / entry.path
            if entry.before:
                self._old(entry).parent.mkdir(parents=True, exist_ok=True)
                place.rename(self._old(entry))
            if entry.after:
                place.parent.mkdir(parents=True, exist_ok=True)
                self._new(entry).rename(place)
        self._sync()

    def undo(self) -> None:
        """The steps that were done, backwards. Each may have been the last."""
        for entry in reversed(self.journal.entries):
            place = self.root / entry.path
            if self._moved_in(entry):
                place.rename(self._new(entry))
            if self._moved_out(entry):
                place.parent.mkdir(parents=True, exist_ok=True)
                self._old(entry).rename(place)
            if not entry.before and place.parent != self.root and not self._is_whole():
                with contextlib.suppress(OSError):  # not empty, or never made
                    place.parent.rmdir()
        self._sync()
        if self.journal.created:
            with contextlib.suppress(OSError):
                self.root.rmdir()
        record.end(self.stage)

    def changed_since(self) -> list[str]:
        """Paths that are not where the swap can have left them, or not what it put there."""
        return [entry.path for entry in self.journal.entries if not self._is_as_left(entry)]

    def _is_as_left(self, entry: Entry) -> bool:
        place = self.root / entry.path
        exists = os.path.lexists(place)
        if self._moved_in(entry):
            return exists and _fingerprint(place) in entry.after
        return exists == (entry.before != ABSENT and not self._moved_out(entry))

    def _moved_out(self, entry: Entry) -> bool:
        return os.path.lexists(self._old(entry))

    def _moved_in(self, entry: Entry) -> bool:
        return bool(entry.after) and not os.path.lexists(self._new(entry))

    def _old(self, entry: Entry) -> Path:
        return self.stage / OLD / (NEW if entry.path == WHOLE else entry.path)

    def _new(self, entry: Entry) -> Path:
        return self.stage / (NEW if entry.path == WHOLE else entry.path)

    def _is_whole(self) -> bool:
        return any(entry.path == WHOLE for entry in self.journal.entries)

    def _sync(self) -> None:
        folder = self.root.resolve().parent if self._is_whole() else self.root
        if folder.is_dir():  # not yet, if the swap ended before it made the repository
            files.sync(folder)


def swap(stage: Path, root: Path, names: Sequence[str], *, created: bool = False) -> None:
    """Move ``names`` from ``stage`` into ``root`` in this order, and what was there into ``stage``.

    A name is a path below both; one that is not in ``stage`` is removed from ``root``. Undone as a whole if
    any step fails. ``created``: the repository was made for this, and goes again with it.
    """
    for name in names:
        transfer.check_inside(name, str(root), root)
    _swap(stage, root, [(name, stage / name) for name in names], created=created or not root.exists())


def replace(stage: Path, root: Path) -> None:
    """Put the folder ``NEW`` of ``stage`` in the place of ``root``, or leave that as it is."""
    _swap(stage, root, [(WHOLE, stage / NEW)], created=False)


def _swap(stage: Path, root: Path, names: Sequence[tuple[str, Path]], *, created: bool) -> None:
    files.sync_all(stage)
    entries = tuple(
        Entry(
            path=name,
            before=_PRESENT if (root / name).exists() else ABSENT,
            after=(_fingerprint(fresh),) if fresh.exists() else (),
        )
        for name, fresh in names
    )
    change = Swap(stage=stage, root=root, journal=Journal(kind=Kind.SWAP, entries=entries, created=created))
    try:
        record.begin(stage, change.journal)
        change.run()
        with contextlib.suppress(OSError):  # it is done; the next command sees that, too
            record.end(stage)
    except BaseException:
        if (stage / record.NAME).exists():  # else nothing was moved, or Ctrl-C came when all was done
            change.undo()
        raise


def _fingerprint(place: Path) -> str:
    """A digest of all names, sizes and times below: an edit changes one of them, also for a hard link."""
    listed: list[tuple[str, int, int]] = []
    for path in sorted([place, *place.rglob("*")]):
        if "__pycache__" in path.parts:
            continue
        facts = path.lstat()
        is_folder = path.is_dir() and not path.is_symlink()
        size, time = (0, 0) if is_folder else (facts.st_size, facts.st_mtime_ns)
        listed.append((path.relative_to(place).as_posix(), size, time))
    return hashlib.sha256(repr(listed).encode()).hexdigest()
