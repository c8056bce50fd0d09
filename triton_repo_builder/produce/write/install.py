"""Moves the model folders of a served repository from one state to the next, as a whole.

A state is every file that ``trb`` has in some model folders. What the user has there beside them stays. Only
what changes is renamed (a version folder, a file beside them): a server may read the rest at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.files import File
from triton_repo_builder.produce.write import ownership
from triton_repo_builder.repository import MANIFEST, Manifest
from triton_repo_builder.repository.journal import staging, swap
from triton_repo_builder.repository.manifest import FileRecord

KEPT = "this step changed nothing"
"""Words for a failed write: earlier steps, and other endpoints, may have changed the repository already."""
SMALL = 1_000_000
"""Limit in bytes for copying a file: a hard link would change with an edit of the other name."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One file of a state: its digest, and its content or the file that has it."""

    record: FileRecord
    content: bytes = b""
    source: Path | None = None

    @classmethod
    def of(cls, content: bytes) -> Piece:
        """A file with this content."""
        record = FileRecord(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
        return cls(record=record, content=content)

    @property
    def bytes(self) -> bytes:
        """The content, read from the file if necessary."""
        return files.read(self.source) if self.source else self.content


State = Mapping[str, Piece]
"""Files by their path in the repository."""


def read(root: Path, records: Mapping[str, FileRecord]) -> dict[str, Piece]:
    """The recorded files that exist, with their actual digests."""
    state = {}
    for path, record in records.items():
        file = root / path
        if not file.is_file():
            continue
        size = file.stat().st_size
        if size <= SMALL:
            piece = Piece.of(files.read(file))
            state[path] = Piece(record=_kept(record, piece.record), content=piece.content)
        else:
            actual = FileRecord(sha256=files.hash_file(file), bytes=size)
            state[path] = Piece(record=_kept(record, actual), source=file)
    return state


def _kept(record: FileRecord, actual: FileRecord) -> FileRecord:
    """The record with its URL, if the file is as recorded."""
    return record if (record.sha256, record.bytes) == (actual.sha256, actual.bytes) else actual


def linked(state: State, folder: Path) -> dict[str, Piece]:
    """Copy of a state whose files are kept in ``folder``, so that renaming the originals loses none."""
    held = {}
    for path, piece in state.items():
        if piece.source is not None:
            files.keep(piece.source, folder / path)
            piece = Piece(record=piece.record, source=folder / path)
        held[path] = piece
    return held


def digests(state: State) -> dict[str, str]:
    """Hex sha256 by path."""
    return {path: piece.record.sha256 for path, piece in state.items()}


def below(state: State, models: Collection[str]) -> dict[str, Piece]:
    """The files of a state in these model folders."""
    return {path: piece for path, piece in state.items() if path.split("/")[0] in models}


def foreign(root: Path, models: Collection[str], recorded: Collection[str]) -> tuple[str, ...]:
    """The user's own files in these model folders."""
    present = ownership.present(root, sorted(model for model in models if (root / model).exists()))
    return tuple(path for path in present if path not in recorded)


def install(root: Path, before: State, after: State, user_files: Collection[str], manifest: Manifest) -> None:
    """Replace the current state ``before`` by ``after``, completely or not at all.

    ``user_files`` are the user's files in these folders. Raises ``TrbError`` DISK_FULL, OUTPUT_NOT_WRITABLE.
    """
    old, new = _units(before), _units(after)
    changed = [unit for unit in sorted({*old, *new}) if old.get(unit) != new.get(unit)]
    text = manifest.to_text()
    if not changed and (root / MANIFEST).is_file() and files.read_text(root / MANIFEST) == text:
        return
    with staging.exclusive(root), staging.staging(root, kept=KEPT) as stage:
        for path, piece in after.items():
            if _unit(path) in changed:
                files.put(File(path=path, content=piece.content, source=piece.source), stage)
        for path in user_files:
            if _unit(path) in changed:
                files.keep(root / path, stage / path)
        (stage / MANIFEST).write_text(text, encoding="utf-8")
        swap.swap(stage, root, (*changed, MANIFEST))
        for model in sorted({unit.split("/")[0] for unit in changed}):
            with contextlib.suppress(OSError):  # not empty
                (root / model).rmdir()


def _unit(path: str) -> str:
    """Entry to rename for this file: its version folder (or other folder of the model), or the file."""
    return "/".join(path.split("/")[:2])


def _units(state: State) -> dict[str, dict[str, str]]:
    units: dict[str, dict[str, str]] = {}
    for path, piece in state.items():
        units.setdefault(_unit(path), {})[path] = piece.record.sha256
    return units
