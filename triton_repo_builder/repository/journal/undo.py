"""A change of single files of a repository, undone as a whole if it fails or its process is killed.

Before the first change each file is linked into a staging folder, and the journal names what each may become.
Putting back is renaming, which a full disk does not prevent.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files, transfer
from triton_repo_builder.repository.journal import record, staging
from triton_repo_builder.repository.journal.record import ABSENT, OLD, Entry, Journal, Kind

Keep = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change of single files as its journal and the files show it."""

    stage: Path
    root: Path
    journal: Journal
    complete = False
    """Never after a kill: only the process knows whether the files are what the server took up."""

    @property
    def begun(self) -> bool:
        """Whether anything was written."""
        return any(
            self._current(entry) != entry.before or files.unfinished(self.root / entry.path)
            for entry in self.journal.entries
        )

    def changed_since(self) -> list[str]:
        """Files that are neither as they were nor as the change may have left them."""
        return [
            entry.path
            for entry in self.journal.entries
            if self._current(entry) not in (entry.before, *entry.after)
        ]

    def undo(self) -> None:
        """Put all files back."""
        for entry in self.journal.entries:
            for unfinished in files.unfinished(self.root / entry.path):
                with contextlib.suppress(OSError):  # it may be anything, and must not end the way back
                    unfinished.unlink()
            if not entry.before:
                (self.root / entry.path).unlink(missing_ok=True)
            elif self._current(entry) != entry.before:
                (self.root / entry.path).parent.mkdir(parents=True, exist_ok=True)
                (self.stage / OLD / entry.path).replace(self.root / entry.path)
        files.sync(self.root)
        record.end(self.stage)

    def _current(self, entry: Entry) -> str:
        return _digest(self.root / entry.path)


@contextlib.contextmanager
def undoable(root: Path, contents: Mapping[str, Collection[bytes | None]]) -> Iterator[Keep]:
    """Change these files, each to one of the contents (None: no file), all of them or none.

    Yield a ``keep`` callback. Changes become permanent when it is called, or at exit: a caller that has more
    than files to take back calls it where a failure can still be handled. Raises ``TrbError`` DISK_FULL or
    OUTPUT_NOT_WRITABLE; then the files are as they were.
    """
    for path in contents:
        transfer.check_inside(path, str(root), root)
    with staging.staging(root) as stage:
        entries = tuple(
            Entry(path=path, before=_digest(root / path), after=tuple(map(_sha256, among)))
            for path, among in contents.items()
        )
        for entry in entries:
            if entry.before:
                files.keep(root / entry.path, stage / OLD / entry.path)
        files.sync_all(stage)
        edit = Edit(stage=stage, root=root, journal=Journal(kind=Kind.EDIT, entries=entries))
        record.begin(stage, edit.journal)

        kept = False

        def keep() -> None:  # if that fails the next command would undo it, so it is undone now
            nonlocal kept
            if not kept:
                record.end(stage)
                kept = True

        try:
            yield keep
            keep()
        except BaseException:
            if not kept:
                edit.undo()
            raise


def _digest(file: Path) -> str:
    return files.hash_file(file) if file.is_file() else ABSENT


def _sha256(content: bytes | None) -> str:
    return ABSENT if content is None else hashlib.sha256(content).hexdigest()
