"""Wait for one's turn at a repository: several builds and pushes at once go one after the other.

A command reads the repository, decides and writes within its turn: nothing of that can be out of date.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import staging

PATIENCE = 1800.0
"""Seconds: ten builds, each of which has gigabytes to copy."""
Tell = Callable[[str], None]


@contextlib.contextmanager
def taken(repository: Path, tell: Tell) -> Iterator[None]:
    """Be the only process that changes a repository, after those that came before.

    Raises ``TrbError`` REPOSITORY_BUSY after PATIENCE. What cannot be read is for the caller to report.
    """
    with contextlib.ExitStack() as stack:
        if repository.is_dir() and os.access(repository, os.R_OK | os.X_OK):
            try:
                stack.enter_context(staging.exclusive(repository, patience=0))
            except TrbError as error:
                if error.code is not Code.REPOSITORY_BUSY:
                    raise
                tell(f"waiting for another trb that works on {repository}")
                stack.enter_context(staging.exclusive(repository, patience=PATIENCE))
        yield


@contextlib.contextmanager
def at_output(output: Path, tell: Tell, *, how: str) -> Iterator[None]:
    """``taken`` for a repository that may not exist yet: it is made, and goes again if it stays empty.

    ``how`` the user chooses another one. Raises ``TrbError`` OUTPUT_NOT_WRITABLE, DISK_FULL, too.
    """
    is_new = False
    while True:
        is_new = _create(output, how) or is_new
        before = _identity(output)
        with taken(output, tell):
            # Whoever had the turn before may have removed the folder that it had made.
            if before == _identity(output):
                try:
                    yield
                finally:
                    if is_new:
                        with contextlib.suppress(OSError):  # it holds a repository now
                            output.rmdir()
                return


def _create(output: Path, how: str) -> bool:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.mkdir()
    except FileExistsError:  # if it is a file, that is for the caller to report
        return False
    except FileNotFoundError:  # the current folder is gone
        raise
    except OSError as error:
        raise files.explain(error, output, how=how) from error
    return True


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        facts = folder.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
