"""Files to be written, and the folder in which they wait until all of them are there.

A build is staged in a folder beside the repository and moved in by renaming whole model directories
(``swap.py``), so that a failure at any point, a full disk too, leaves the old repository as it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from triton_repo_builder.errors import Code, TrbError

_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file, copy on write
_CHUNK = 1 << 20
OLD = ".old"
"""In a staging folder: what was moved out of the repository and may have to go back."""
REPLACED = ".replaced"
"""There, too: a whole folder that was moved out, by a pull."""
_YOUNG = 60
"""Seconds."""


class Checksum:
    """The sha256 of a large file, computed once and beside other work."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = ""
        self._error: OSError | None = None
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            self._digest = hash_file(self._path)
        except OSError as error:
            self._error = error

    def __str__(self) -> str:
        """Hex digest, as soon as it is there; raises ``OSError`` where the file cannot be read."""
        self._reader.join()
        if self._error:
            raise self._error
        return self._digest


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the repository: its path there, and its content or the file it is a copy of."""

    path: str
    content: bytes = b""
    source: Path | None = None
    checksum: Checksum | None = field(default=None, compare=False, repr=False)
    """Of ``source``, where it is under way already."""

    def sha256(self) -> str:
        """Hex digest of the content."""
        if self.checksum:
            return str(self.checksum)
        return hash_file(self.source) if self.source else hashlib.sha256(self.content).hexdigest()

    def size(self) -> int:
        """Bytes."""
        return self.source.stat().st_size if self.source else len(self.content)


def hash_file(path: Path) -> str:
    """Hex sha256 of a file, read once in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def put(file: File, root: Path) -> None:
    """Write one file under ``root``; a copy shares the source's blocks or inode where it can."""
    target = root / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        # Writing on would go through a hard link into the user's own file.
        raise AssertionError(f"two files are called {file.path}")
    if file.source is None:
        target.write_bytes(file.content)
        return
    source = file.source.resolve()
    if not _reflink(source, target):
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)


def write(file: Path, content: bytes) -> None:
    """Replace one file, whole or not at all; file system errors become ``TrbError``."""
    fresh = file.with_name(f".{file.name}.trb")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(content)
        fresh.replace(file)
    except OSError as error:
        raise explain(error, file.parent) from error


def keep(file: Path, target: Path) -> None:
    """Carry a file of the user's over as it is: mode, times, symbolic links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, target, follow_symlinks=False)


def _reflink(source: Path, target: Path) -> bool:
    try:
        import fcntl
    except ModuleNotFoundError:  # not on this platform
        return False
    with source.open("rb") as origin, target.open("wb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, origin.fileno())
            return True
        except OSError:
            pass
    target.unlink()
    return False


@contextlib.contextmanager
def staging(
    output: Path, *, how: str = "with --output", kept: str = "the repository is as it was"
) -> Iterator[Path]:
    """An empty folder beside ``output``, removed at the end; file system errors become ``TrbError``.

    ``how`` the user chooses ``output``, and what is ``kept``: each command has its own words. The folder lies
    inside ``output`` where that is a mounted volume: nothing can be renamed across its border.
    What a killed process left there is removed first.
    """
    parent, prefix = _place(output)
    folder = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(output)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with locked(folder):
            yield folder
    except OSError as error:
        raise explain(error, output, how=how, kept=kept) from error
    finally:
        # Still there where a swap failed and could not be undone either.
        if folder is not None and not _holds(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _place(output: Path) -> tuple[Path, str]:
    """Where the staging folders of ``output`` lie, and how their names begin."""
    resolved = output.resolve()
    return resolved if resolved.is_mount() else resolved.parent, f".{output.name}.trb-"


def leftovers(output: Path) -> list[Path]:
    """The staging folders of ``output`` that are there: of builds that run, or were killed."""
    try:
        parent, prefix = _place(output)
        return sorted(folder for folder in parent.iterdir() if folder.name.startswith(prefix))
    except OSError:  # nothing there, or nothing that can be written to either
        return []


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold a lock that ends with this process, however it ends; False where somebody else holds it."""
    try:
        import fcntl
    except ModuleNotFoundError:  # not on this platform
        yield False
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process, or a file system without locks
        os.close(held)
        yield False
        return
    try:
        yield True
    finally:
        os.close(held)


def _holds(folder: Path) -> bool:
    """Whether a staging folder may have the only copy of something."""
    return (folder / OLD).exists() or (folder / REPLACED).exists()


def _sweep(output: Path) -> None:
    """Remove the staging folders of processes that are gone.

    Not one with what ``swap`` moved out of a repository: a process that was killed in between left the only
    copy there (``swap.recover`` moves it back). Nor a young one, whose process may be about to lock it.
    """
    with contextlib.suppress(OSError):
        for folder in leftovers(output):
            if _holds(folder) or time.time() - folder.stat().st_mtime < _YOUNG:
                continue
            with locked(folder) as mine:
                if mine:
                    shutil.rmtree(folder, ignore_errors=True)


def explain(
    error: OSError, output: Path, *, how: str = "with --output", kept: str = "the repository is as it was"
) -> TrbError:
    """What a failed write means for the user. What was there has not changed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TrbError(
            Code.DISK_FULL,
            f"the disk is full; {kept}",
            where=str(output),
            remedy=f"free some space, or choose another disk {how}",
        )
    return TrbError(
        Code.OUTPUT_NOT_WRITABLE,
        f"cannot be written: {error.strerror or error}",
        where=str(error.filename or output),
        remedy=f"choose a folder that you may write to {how}, or change its permissions",
    )
