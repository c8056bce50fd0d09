"""What a process that was killed left half done in a repository, undone by the next command of any kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import between, staging, swap, undo


def recover(repository: Path, *, write: bool = True) -> tuple[str, ...]:
    """Undo what a killed process left half done; a line for each thing. Raises ``TrbError``.

    EDITED_FILE: undoing would lose what was changed since. REPOSITORY_BUSY: another process is replacing
    the repository's folders right now, and is not done within ``staging.PATIENCE``. With ``write`` off
    nothing is touched, and REPOSITORY_UNREADABLE says what is half done.
    """
    notes: list[str] = []
    try:
        for stage in staging.leftovers(repository):
            _wait(stage, repository)
            with staging.locked(stage) as acquired:
                if acquired:
                    notes += _recovered(stage, repository, write=write)
    except OSError as error:
        raise files.explain(error, repository) from error
    except files.DAMAGED as error:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"a trb that was killed left a journal that is damaged: {type(error).__name__} {error}",
            where=str(stage),
            remedy="see what is in that folder, move back what you need, then remove it",
        ) from None
    return tuple(notes)


def not_followed(repository: Path) -> tuple[str, ...]:
    """A line for each folder that looks like a staging folder, and that this user's ``trb`` did not leave."""
    return tuple(
        f"{folder} looks like what a killed trb leaves, but your trb did not leave it here: not followed; "
        "if you know what is in it, move back what you need, then remove it"
        for folder in staging.foreign(repository)
    )


def _recovered(stage: Path, repository: Path, *, write: bool) -> Iterator[str]:
    names = (swap.DONE, undo.BEFORE)
    begun = staging.holds(stage) or any((stage / name).exists() for name in names)
    for half in (
        *swap.recover(stage, repository, write=write),
        *undo.recover(stage, repository, write=write),
        *_put_back(stage, repository, write=write),
    ):
        if not write:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                f"{half}; nothing was read",
                where=str(repository),
                remedy=f"run that command again, or trb fetch {repository}: whatever writes there undoes it",
            )
        yield half
    yield from between.recover(stage, repository, write=write)
    if write and (begun or staging.abandoned(stage)) and not staging.holds(stage):
        staging.discard(stage)


def _put_back(stage: Path, target: Path, *, write: bool) -> Iterator[str]:
    """Put back what a killed pull had moved away to make room for the new revision."""
    moved = stage / staging.REPLACED
    if not moved.exists():
        return
    if not target.exists():
        if not write:
            yield "a pull that was killed moved the folder away"
            return
        moved.rename(target)
        yield "a pull that was killed had moved the folder away: it is as it was before"
    elif write:  # the new revision is in its place, whole
        moved.rename(stage / swap.DONE)


def _wait(stage: Path, repository: Path) -> None:
    """Wait while another process is between the renames of a swap: nobody may read such a repository."""
    deadline = time.monotonic() + staging.PATIENCE
    while (stage / staging.OLD).exists():
        with staging.locked(stage) as acquired:
            if acquired:
                return
        if time.monotonic() > deadline:
            raise staging.busy(repository, "another trb is replacing folders of this repository now")
        time.sleep(staging.TICK)
