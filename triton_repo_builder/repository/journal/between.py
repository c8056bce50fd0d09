"""The mark on a repository that ``trb apply`` takes through states that are neither the old nor the new one.

Each of them can be served, and the next apply goes on from it. None of them may be committed or pushed, or be
what another change starts from; so the mark stays where the process was killed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import MANIFEST
from triton_repo_builder.repository.journal import seal, staging


def mark(stage: Path, endpoint: str, whole: Collection[str]) -> None:
    """Say that ``endpoint`` changes; ``whole``: the texts of manifest.json with which it is whole."""
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in whole]
    seal.write(stage, staging.APPLYING, {"endpoint": endpoint, "whole": digests})


def unmark(stage: Path) -> None:
    """The endpoint is whole again."""
    (stage / staging.APPLYING).unlink(missing_ok=True)


def recover(stage: Path, root: Path, *, write: bool) -> Iterator[str]:
    """A line for an apply that is gone and left something between two states; else the mark is removed."""
    if endpoint := _between(stage, root):
        yield f"a trb apply that was killed left '{endpoint}' between two states: run it again"
    elif write:
        unmark(stage)


def refuse(root: Path) -> None:
    """Raise APPLY_FAILED, or REPOSITORY_BUSY while the apply runs, if something is between two states."""
    for stage in staging.leftovers(root):
        endpoint = _between(stage, root)
        if not endpoint:
            continue
        with staging.locked(stage) as gone:
            if not gone:
                raise staging.busy(root, f"a trb apply is changing '{endpoint}' now")
        raise TrbError(
            Code.APPLY_FAILED,
            f"a trb apply that was killed left '{endpoint}' between two states; nothing was done",
            where=str(root),
            remedy="run the same trb apply again; or restore the folder (trb pull --force, git checkout) and "
            f"remove {stage}",
        )


def clear(root: Path, endpoint: str | None = None) -> None:
    """The endpoint (None: each) is as it was asked for: an earlier process's mark is not true any more."""
    for stage in staging.leftovers(root):
        with contextlib.suppress(OSError), staging.locked(stage) as gone:
            if gone and (endpoint is None or _between(stage, root) in ("", endpoint)):
                unmark(stage)


def _between(stage: Path, root: Path) -> str:
    """The endpoint that is between two states; empty if the repository is whole."""
    try:
        marked = seal.read(stage, staging.APPLYING)
        whole, endpoint = [str(digest) for digest in marked["whole"]], str(marked["endpoint"])
    except (OSError, *files.DAMAGED):  # none, or one that was written by half, before the first change
        return ""
    manifest = root / MANIFEST
    return "" if manifest.is_file() and files.hash_file(manifest) in whole else endpoint
