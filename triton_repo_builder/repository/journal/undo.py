"""A change of single files of a repository, undone as a whole if it fails or its process is killed.

Before the first change each file is linked into a staging folder, and a journal names what each may become.
While the journal is there the change has not ended: whoever finds it without its process puts all files back.
Putting back is renaming, which a full disk does not prevent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import seal, staging

BEFORE = "before"
"""Subfolder of the staging folder: the files as they were."""
_ABSENT = ""
"""In place of a digest: no file."""
Keep = Callable[[], None]
Journal = dict[str, list[str]]
"""Path → digests: the first is what it was, the others are what the change may make of it."""


@contextlib.contextmanager
def undoable(root: Path, contents: Mapping[str, Collection[bytes | None]]) -> Iterator[Keep]:
    """Change these files, each to one of the contents (None: no file), all of them or none.

    What is changed stays once the function that this gives was called: by whoever has more to take back than
    files if that fails, else at the end. Raises ``TrbError`` DISK_FULL or OUTPUT_NOT_WRITABLE; then the files
    are as they were.
    """
    for path in contents:
        transfer.check_inside(path, str(root), root)
    with staging.staging(root) as stage:
        journal = {path: [_digest(root / path), *map(_sha256, among)] for path, among in contents.items()}
        for path, (before, *_) in journal.items():
            if before:
                _link(root / path, stage / BEFORE / path)
        files.sync_all(stage)
        seal.write(stage, staging.UNDO, journal)

        kept = False

        def keep() -> None:  # if that fails the next command would undo it, so it is undone now
            nonlocal kept
            if not kept:
                (stage / staging.UNDO).unlink()
                kept = True

        try:
            yield keep
            keep()
        except BaseException:
            if not kept:
                _put_back(stage, root, journal)
            raise


def recover(stage: Path, root: Path, *, write: bool) -> Iterator[str]:
    """Undo what a process that is gone had begun; a line for it. Raises ``TrbError`` EDITED_FILE.

    The error is raised if a file has become something else meanwhile, which undoing would lose.
    """
    if not (stage / staging.UNDO).is_file():
        return
    journal = _read(stage, root)
    current = {path: _digest(root / path) for path in journal}
    begun = any(
        current[path] != before or files.unfinished(root / path) for path, (before, *_) in journal.items()
    )
    if not write:
        if begun:
            yield "a trb that was killed left a change half done"
        return
    other = [path for path, digests in journal.items() if current[path] not in digests]
    if other:
        raise TrbError(
            Code.EDITED_FILE,
            "a trb that was killed left a change half done, and that cannot be undone, since files were "
            f"changed after that: {', '.join(other[:5])}",
            where=str(root),
            remedy=f"the files as they were are in {stage / BEFORE}: copy back what you need, then remove "
            f"{stage}",
        )
    _put_back(stage, root, journal)
    if begun:
        yield "a trb that was killed had left a change half done: the repository is as it was before"


def _read(stage: Path, root: Path) -> Journal:
    """Raises one of ``files.DAMAGED``, and ``TrbError`` for a path that leads out of the repository."""
    journal: Journal = {}
    for path, digests in seal.read(stage, staging.UNDO).items():
        transfer.check_inside(path, str(stage / staging.UNDO), root)
        journal[path] = [str(digest) for digest in (digests[0], *digests[1:])]
    return journal


def _put_back(stage: Path, root: Path, journal: Journal) -> None:
    for path, (before, *_) in journal.items():
        for unfinished in files.unfinished(root / path):
            with contextlib.suppress(OSError):  # it may be anything, and must not end the way back
                unfinished.unlink()
        if not before:
            (root / path).unlink(missing_ok=True)
        elif _digest(root / path) != before:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (stage / BEFORE / path).replace(root / path)
    files.sync(root)
    (stage / staging.UNDO).unlink(missing_ok=True)


def _link(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:  # a file system without links
        shutil.copy2(file, target)


def _digest(file: Path) -> str:
    return files.hash_file(file) if file.is_file() else _ABSENT


def _sha256(content: bytes | None) -> str:
    return _ABSENT if content is None else hashlib.sha256(content).hexdigest()
