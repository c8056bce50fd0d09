"""The end of a change whose process was killed: finished or undone by the next command of any kind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.repository.journal import between, record, staging
from triton_repo_builder.repository.journal.record import Journal, Kind
from triton_repo_builder.repository.journal.swap import Swap
from triton_repo_builder.repository.journal.undo import Edit

_CHANGES: Mapping[Kind, tuple[type[Swap] | type[Edit], str]] = {
    Kind.SWAP: (Swap, "replaced"),
    Kind.EDIT: (Edit, "changed"),
}


def recover(repository: Path, *, write: bool = True) -> tuple[str, ...]:
    """Finish or undo what a killed process left; a line for each change. Raises ``TrbError``.

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
    return tuple(notes)


def not_followed(repository: Path) -> tuple[str, ...]:
    """A line for each folder that looks like a staging folder, and that this user's ``trb`` did not leave."""
    return tuple(
        f"{folder} looks like what a killed trb leaves, but your trb did not leave it here: not followed; "
        "if you know what is in it, move back what you need, then remove it"
        for folder in staging.foreign(repository)
    )


def _recovered(stage: Path, repository: Path, *, write: bool) -> Iterator[str]:
    journal = record.read(stage, repository)
    begun = journal is not None or (stage / record.OLD).exists()
    if journal is None:
        pass
    elif journal.kind is Kind.APPLY:
        if not between.is_whole(repository, journal):
            yield f"a trb apply that was killed left '{journal.endpoint}' between two states: run it again"
        elif write:
            record.end(stage)
    else:
        yield from _ended(stage, repository, journal, write=write)
    if write and (begun or staging.abandoned(stage)) and not staging.holds(stage):
        staging.discard(stage)


def _ended(stage: Path, root: Path, journal: Journal, *, write: bool) -> Iterator[str]:
    kind, done = _CHANGES[journal.kind]
    change = kind(stage=stage, root=root, journal=journal)
    if not change.begun:
        if write:
            change.undo()
    elif change.complete:
        if write:
            record.end(stage)
            yield f"a trb that was killed had {done} all that it was to: finished"
    elif not write:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"a trb that was killed left the repository half {done}; nothing was read",
            where=str(root),
            remedy=f"run that command again, or trb fetch {root}: whatever writes there undoes it",
        )
    elif changed := change.changed_since():
        raise _unsafe(changed, done, stage, root)
    else:
        change.undo()
        yield f"a trb that was killed had left the repository half {done}: it is as it was before"


def _unsafe(changed: list[str], done: str, stage: Path, root: Path) -> TrbError:
    return TrbError(
        Code.EDITED_FILE,
        f"a trb that was killed left the repository half {done}, and that cannot be undone, since it was "
        f"changed after that: {some(changed, 5)}",
        where=str(root),
        remedy=f"what was there before is in {stage / record.OLD}: move back what you need, then remove "
        f"{stage}",
    )


def _wait(stage: Path, repository: Path) -> None:
    """Wait while another process is between the renames of a swap: nobody may read such a repository."""
    deadline = time.monotonic() + staging.PATIENCE
    while record.is_swap(stage):
        with staging.locked(stage) as acquired:
            if acquired:
                return
        if time.monotonic() > deadline:
            raise staging.busy(repository, "another trb is replacing folders of this repository now")
        time.sleep(staging.TICK)
