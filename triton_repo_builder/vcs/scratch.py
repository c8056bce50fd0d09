"""The scratch folder of one commit, in git's own folder: the next one finds what a killed one left."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triton_repo_builder import files
from triton_repo_builder.vcs.git import Git
from triton_repo_builder.write import staging

PREFIX = "trb-commit-"
_UNLOCKED = "trb-unlocked-"
"""Prefix until the folder is locked: one that has its name is locked, or its process is gone."""
_YOUNG = 60
"""Seconds after which nobody is about to lock a folder any more."""


@contextmanager
def folder(git: Git, notes: list[str]) -> Iterator[Path]:
    """An empty folder that is locked while this process lives.

    Raises ``TrbError`` OUTPUT_NOT_WRITABLE, DISK_FULL for whatever cannot be written meanwhile.
    Folders and linked work trees of processes that are gone are removed first.
    """
    common = Path(git("rev-parse", "--path-format=absolute", "--git-common-dir").rstrip("\n")).resolve()
    if _sweep(git, common):
        notes.append("removed what a trb commit that was killed had left in git's folder")
    made = None
    try:
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=common))
        with staging.locked(made):
            made = made.rename(made.with_name(made.name.replace(_UNLOCKED, PREFIX, 1)))
            yield made
    except OSError as error:  # whoever writes there does so before git commits
        raise files.explain(error, common, how="for it", kept="nothing was committed") from None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def _sweep(git: Git, common: Path) -> bool:
    """Remove what processes that are gone have left; whether there was anything."""
    left = False
    for place in sorted((*common.glob(f"{PREFIX}*"), *common.glob(f"{_UNLOCKED}*"))):
        with suppress(OSError):  # another process removes it, too
            if place.name.startswith(_UNLOCKED) and time.time() - place.stat().st_mtime < _YOUNG:
                continue
            with staging.locked(place) as gone:
                if gone:
                    shutil.rmtree(place, ignore_errors=True)
                    left = True
    for line in git.ask("worktree", "list", "--porcelain").splitlines():
        tree = Path(line.removeprefix("worktree "))
        if tree.parent.parent == common and tree.parent.name.startswith(PREFIX) and not tree.parent.exists():
            # Twice: one that was being added is locked.
            git.ask("worktree", "remove", "--force", "--force", str(tree))
            left = True
    return left
