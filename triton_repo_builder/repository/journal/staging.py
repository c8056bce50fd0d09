"""Files to be written, and the folder in which they wait until all of them are there.

A build is staged in a folder beside the repository and moved in by renaming whole model directories
(``swap.py``), so that a failure at any point, a full disk too, leaves the old repository as it was.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import record, seal

TICK = 0.05
PATIENCE = 5.0
"""Seconds to wait for another process that changes the repository."""
_YOUNG = 60
"""Seconds."""
_mine: set[tuple[int, int]] = set()
"""Device and inode of the repositories whose lock this process holds."""


@contextlib.contextmanager
def staging(output: Path, *, how: str = "", kept: str = "the repository is unchanged") -> Iterator[Path]:
    """An empty folder beside ``output``, removed at the end; file system errors become ``TrbError``.

    ``how`` the user may choose another ``output``, and what is ``kept``: each command has its own words. The
    folder is inside ``output`` if that is a mounted volume: nothing can be renamed across its border.
    Folders of killed processes are removed first.
    """
    parent, prefix = _place(output)
    folder = _named_at_random(parent, prefix)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(output)
        folder.mkdir(mode=0o700)
        with locked(folder):
            seal.mark(folder)
            yield folder
    except OSError as error:
        raise files.explain(error, output, how=how, kept=kept) from error
    finally:
        process.to_the_end(lambda: _leave(folder))


def _named_at_random(parent: Path, prefix: str) -> Path:
    """A folder that is yet to be made: if Ctrl-C comes while it is, its name is known."""
    return parent / f"{prefix}{secrets.token_hex(8)}"


def _leave(folder: Path) -> None:
    # Still there if a swap failed and could not be undone either.
    if not holds(folder):
        discard(folder)


def discard(folder: Path) -> None:
    """Remove a staging folder, its mark last: what a kill or an error leaves of it is still known as ours."""
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            if entry.name == seal.MARK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)
        (folder / seal.MARK).unlink(missing_ok=True)
        folder.rmdir()


def _place(output: Path) -> tuple[Path, str]:
    """The parent of the staging folders of ``output``, and the prefix of their names."""
    resolved = output.resolve()
    return resolved if resolved.is_mount() else resolved.parent, f".{resolved.name}.trb-"


def leftovers(output: Path) -> list[Path]:
    """This user's staging folders of ``output`` that are there: of commands that run, or were killed."""
    return [folder for folder in _named(output) if seal.is_ours(folder) or _is_blank(folder)]


def foreign(output: Path) -> list[Path]:
    """Folders named like this user's staging folders that hold something and are not among them.

    A clone, an archive or another user brought it; or the key of ``seal`` was lost with the home folder.
    """
    return [folder for folder in _named(output) if not seal.is_ours(folder) and _has_content(folder)]


def _is_blank(folder: Path) -> bool:
    """Whether nothing is in this folder: its process was killed before it had marked it."""
    try:
        entries = list(folder.iterdir()) if _is_own_folder(folder) else [folder]
        return all(entry.name == seal.MARK and entry.lstat().st_size == 0 for entry in entries)
    except OSError:  # gone meanwhile
        return False


def _named(output: Path) -> list[Path]:
    """Whatever has the name of a staging folder of ``output``."""
    try:
        parent, prefix = _place(output)
        return sorted(folder for folder in parent.iterdir() if folder.name.startswith(prefix))
    except OSError:  # nothing there, or nothing that can be written to either
        return []


def _has_content(folder: Path) -> bool:
    try:
        return any((folder / name).exists() for name in (record.NAME, record.OLD))
    except OSError:  # another user's
        return False


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold a lock that ends with this process, however it ends.

    False if another process holds it, or has removed the folder meanwhile.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # not on this platform
        yield False
        return
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
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


@contextlib.contextmanager
def temporary(kind: str) -> Iterator[Path]:
    """A folder for temporary files, removed at the end.

    It may have to hold a whole repository. So one of this kind that a killed process left is removed first.
    """
    place, prefix = Path(tempfile.gettempdir()), f"trb-held-{kind}-"
    _sweep_all(folder for folder in place.glob(f"{prefix}*") if _is_own_folder(folder))
    folder = _named_at_random(place, prefix)
    try:
        with filling():
            folder.mkdir(mode=0o700)
        with locked(folder):
            yield folder
    finally:
        process.to_the_end(lambda: shutil.rmtree(folder, ignore_errors=True))


@contextlib.contextmanager
def filling() -> Iterator[None]:
    """Fill a ``temporary`` folder: a full disk becomes ``TrbError`` DISK_FULL, by its name."""
    try:
        yield
    except OSError as error:
        if not files.is_full(error):
            raise
        place = Path(tempfile.gettempdir())
        raise files.explain(error, place, how="by TMPDIR", kept="nothing was changed") from error


@contextlib.contextmanager
def exclusive(repository: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Be the only process that changes a repository, or what a search keeps in its folder.

    Raises ``TrbError`` REPOSITORY_BUSY after ``patience`` seconds, and REPOSITORY_UNREADABLE. The lock is one
    on the folder itself, and ends with the process. It may be taken again by its holder.
    """
    facts = repository.stat()
    key = facts.st_dev, facts.st_ino
    if key in _mine:
        yield
        return
    try:
        import fcntl
    except ModuleNotFoundError:  # not on this platform
        yield
        return
    try:
        held = os.open(repository, os.O_RDONLY)
    except OSError as error:
        raise files.unreadable(repository, error, code=Code.REPOSITORY_UNREADABLE) from None
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise busy(repository, "another trb is changing this folder now") from None
                time.sleep(TICK)
            except OSError:  # a file system without locks
                break
        _mine.add(key)
        yield
    finally:
        _mine.discard(key)
        os.close(held)


def busy(repository: Path, message: str) -> TrbError:
    """The error for a repository that another process changes at the same time."""
    return TrbError(
        Code.REPOSITORY_BUSY,
        f"{message}; nothing was written",
        where=str(repository),
        remedy="run the same command again once the other one has ended",
    )


def holds(folder: Path) -> bool:
    """Whether a change has not ended: its staging folder may have the only copy of something."""
    return (folder / record.NAME).exists()


def abandoned(folder: Path) -> bool:
    """Whether no process can be about to lock a staging folder any more, though it holds no lock yet."""
    return time.time() - folder.stat().st_mtime >= _YOUNG


def _sweep(output: Path) -> None:
    """Remove the staging folders of processes that are gone.

    Not one with a journal: a process that was killed in between may have left the only copy of something
    there (``recovery.recover`` puts it back). Nor a young one, whose process may be about to lock it.
    """
    _sweep_all(folder for folder in leftovers(output) if not holds(folder))


def _is_own_folder(path: Path) -> bool:
    """Whether this is a folder of this user, not a link to one, and still there."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()


def _sweep_all(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if not abandoned(folder):
                continue
            with locked(folder) as acquired:
                if acquired:
                    discard(folder)
