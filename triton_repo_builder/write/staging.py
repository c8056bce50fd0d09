"""Files to be written, and the folder in which they wait until all of them are there.

A build is staged in a folder beside the repository and moved in by renaming whole model directories
(``swap.py``), so that a failure at any point, a full disk too, leaves the old repository as it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder import files

OLD = ".old"
"""Subfolder of a staging folder for files moved out of the repository, which may have to go back."""
REPLACED = ".replaced"
"""There, too: a whole folder that was moved out, by a pull."""
_YOUNG = 60
"""Seconds."""


@contextlib.contextmanager
def staging(
    output: Path, *, how: str = "with --output", kept: str = "the repository is unchanged"
) -> Iterator[Path]:
    """An empty folder beside ``output``, removed at the end; file system errors become ``TrbError``.

    ``how`` the user chooses ``output``, and what is ``kept``: each command has its own words. The folder is
    inside ``output`` if that is a mounted volume: nothing can be renamed across its border.
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
        raise files.explain(error, output, how=how, kept=kept) from error
    finally:
        # Still there if a swap failed and could not be undone either.
        if folder is not None and not _holds(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _place(output: Path) -> tuple[Path, str]:
    """The parent of the staging folders of ``output``, and the prefix of their names."""
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
    """Hold a lock that ends with this process, however it ends; False if another process holds it."""
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
            with locked(folder) as acquired:
                if acquired:
                    shutil.rmtree(folder, ignore_errors=True)
