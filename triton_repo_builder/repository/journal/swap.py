"""The swap of a staged build into its repository, and its undoing after a process that was killed.

Before the first rename a journal is written beside ``.old``. Each rename is one step of the file system, so
the journal and the places of the directories show how far a swap came: a staging folder with ``.old`` in
it is one that neither ended nor was undone, and the only copy of something may be there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import seal, staging

JOURNAL = ".swap.json"
DONE = ".done"
"""New name of ``.old`` after the swap: such a folder may be removed at any point."""


@dataclass(frozen=True, kw_only=True)
class Journal:
    """A planned swap."""

    created: bool
    """The repository was not there before."""
    names: tuple[str, ...]
    """Directories and files to swap, in order."""
    replaced: tuple[str, ...]
    """Of these, those that the repository had."""
    fresh: dict[str, list[list[Any]]]
    """Of these, those that the build brings: (path, size, time) of all in it."""


def swap(stage: Path, output: Path, names: Sequence[str], *, created: bool = False) -> None:
    """Move ``names`` from ``stage`` into ``output`` in this order, what was there into ``stage``.

    A name is a path below both; one that is not in ``stage`` is removed from ``output``. Undone as a whole
    if any step fails. ``created``: the repository was made for this, and goes again with it.
    """
    for name in names:
        transfer.check_inside(name, str(output), output)
    old = stage / staging.OLD
    files.sync_all(stage)
    journal = Journal(
        created=created or not output.exists(),
        names=tuple(names),
        replaced=tuple(name for name in names if (output / name).exists()),
        fresh={name: _listed(stage / name) for name in names if (stage / name).exists()},
    )
    seal.write(stage, JOURNAL, asdict(journal))
    old.mkdir()
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name in journal.replaced:
                (old / name).parent.mkdir(parents=True, exist_ok=True)
                (output / name).rename(old / name)
            if name in journal.fresh:
                (output / name).parent.mkdir(parents=True, exist_ok=True)
                (stage / name).rename(output / name)
        files.sync(output)
    except BaseException:
        _undo(stage, output, journal)
        raise
    with contextlib.suppress(OSError):  # it is done; the next build sees that, too
        old.rename(stage / DONE)


def recover(stage: Path, output: Path, *, write: bool) -> Iterator[str]:
    """Undo the swap of a process that is gone; a line if it had begun. Raises ``TrbError`` EDITED_FILE.

    The error is raised if the repository was changed since, so that undoing would lose something.
    """
    if not (stage / staging.OLD).exists() or not (stage / JOURNAL).exists():
        return
    journal = _read(stage, output)
    moved = [name for name in journal.names if _moved_out(stage, name) or _moved_in(stage, name, journal)]
    complete = set(journal.fresh) | set(journal.replaced) == set(moved) and not any(
        (stage / name).exists() for name in journal.fresh
    )
    if not write:
        if moved and not complete:
            yield "a trb that was killed left the repository half replaced"
        return
    if complete:
        (stage / staging.OLD).rename(stage / DONE)
    else:
        changed = _changed(stage, output, journal)
        if changed:
            raise _unsafe(changed, stage, output)
        _undo(stage, output, journal)
        if moved:
            yield "a trb that was killed had left the repository half replaced: it is as it was before"


def _moved_out(stage: Path, name: str) -> bool:
    return os.path.lexists(stage / staging.OLD / name)


def _moved_in(stage: Path, name: str, journal: Journal) -> bool:
    return name in journal.fresh and not os.path.lexists(stage / name)


def _undo(stage: Path, output: Path, journal: Journal) -> None:
    """The steps that were done, backwards. Each may have been the last."""
    for name in reversed(journal.names):
        if _moved_in(stage, name, journal):
            (output / name).rename(stage / name)
        if _moved_out(stage, name):
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / staging.OLD / name).rename(output / name)
    files.sync(output)
    if journal.created:
        with contextlib.suppress(OSError):
            output.rmdir()
    (stage / staging.OLD).rename(stage / DONE)


def _changed(stage: Path, output: Path, journal: Journal) -> list[str]:
    """Names that are not where the swap can have left them, or not what it put there."""
    return [name for name in journal.names if not _as_left(stage, output, name, journal)]


def _as_left(stage: Path, output: Path, name: str, journal: Journal) -> bool:
    exists = os.path.lexists(output / name)
    if _moved_in(stage, name, journal):
        return exists and _listed(output / name) == journal.fresh[name]
    return exists == (name in journal.replaced and not _moved_out(stage, name))


def _unsafe(changed: Sequence[str], stage: Path, output: Path) -> TrbError:
    listed = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
    backup = stage / staging.OLD
    return TrbError(
        Code.EDITED_FILE,
        "a trb that was killed left the repository half replaced, and that cannot be undone, since it was "
        f"changed after that: {listed}",
        where=str(output),
        remedy=f"what was there before is in {backup}: move back what you need, then remove {stage}",
    )


def _listed(place: Path) -> list[list[Any]]:
    """All that is in a folder: an edit changes size or time, also of a file with two names."""
    entries: list[list[Any]] = []
    for path in sorted([place, *place.rglob("*")]):
        if "__pycache__" in path.parts:
            continue
        facts = path.lstat()
        kind = [0, 0] if path.is_dir() and not path.is_symlink() else [facts.st_size, facts.st_mtime_ns]
        entries.append([path.relative_to(place).as_posix(), *kind])
    return entries


def _read(stage: Path, output: Path) -> Journal:
    """Raises one of ``files.DAMAGED``, and ``TrbError`` for a name that leads out of the repository."""
    document = seal.read(stage, JOURNAL)
    journal = Journal(
        created=document["created"] is True,
        names=tuple(document["names"]),
        replaced=tuple(document["replaced"]),
        fresh={str(name): list(listed) for name, listed in document["fresh"].items()},
    )
    for name in (*journal.names, *journal.replaced, *journal.fresh):
        transfer.check_inside(name, str(stage / JOURNAL), output)
    return journal
