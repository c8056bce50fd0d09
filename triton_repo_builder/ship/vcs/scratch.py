"""The scratch folder of one commit, in git's own folder, where the next commit finds a killed one's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.ship.vcs.git import Git

PREFIX = "trb-commit-"
_UNLOCKED = "trb-unlocked-"
"""Prefix until the folder is locked: one that has its name is locked, or its process is gone."""


@contextmanager
def folder(git: Git) -> Iterator[Path]:
    """An empty folder that is locked while this process lives.

    Raises ``TrbError`` OUTPUT_NOT_WRITABLE, DISK_FULL if a write fails meanwhile.
    """
    common = _common(git)
    path = None
    try:
        path = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=common))
        with staging.locked(path):
            path = path.rename(path.with_name(path.name.replace(_UNLOCKED, PREFIX, 1)))
            yield path
    except OSError as error:  # all writes there happen before git commits
        raise files.explain(error, common, how="for it", kept="nothing was committed") from None
    finally:
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)


def linked_tree(scratch: Path) -> Path:
    """Path of a linked work tree in a scratch folder; git's own folder for it gets the same name."""
    return scratch / scratch.name


def sweep(git: Git) -> bool:
    """Remove scratch folders of ended processes; returns whether there were any.

    Runs before any question about work trees: git fails on a half-made one.
    """
    common = _common(git)
    left = False
    for place in sorted((*common.glob(f"{PREFIX}*"), *common.glob(f"{_UNLOCKED}*"))):
        with suppress(OSError):  # another process removes it, too
            if place.name.startswith(_UNLOCKED) and not staging.abandoned(place):
                continue
            with staging.locked(place) as gone:
                if gone:
                    shutil.rmtree(place, ignore_errors=True)
                    left = True
    living = tuple(place.name for place in common.glob(f"{PREFIX}*"))
    for ours in sorted((common / "worktrees").glob(f"{PREFIX}*")):
        if not ours.name.startswith(living):
            shutil.rmtree(ours, ignore_errors=True)
            left = True
    with suppress(OSError):  # not there, or another work tree is
        (common / "worktrees").rmdir()
    return left


def _common(git: Git) -> Path:
    return Path(git("rev-parse", "--path-format=absolute", "--git-common-dir").rstrip("\n")).resolve()
