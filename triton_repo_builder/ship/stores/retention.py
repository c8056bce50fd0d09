"""Revisions in a store, and which of them may be removed."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores.store import Location, Progress, Store, Stored


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """Result of a prune; a dry run reports what it would do."""

    location: str
    kept: tuple[Stored, ...]
    removed: tuple[Stored, ...]
    ended: tuple[str, ...]
    """Revisions whose removal an earlier prune had begun."""
    dry_run: bool = False

    @property
    def bytes(self) -> int:
        """Sum of the removed revisions; what kept ones share with them is counted, too."""
        return sum(stored.bytes for stored in self.removed)


def prune(
    store: Store, location: Location, keep: int, progress: Progress, *, dry_run: bool = False
) -> Pruned:
    """Remove all but the ``keep`` newest revisions and those that are referred to."""
    revisions = store.revisions()
    going = [stored for stored in revisions[keep:] if not stored.holds]
    begun = store.leftovers()
    removed = []
    for done, stored in enumerate(going):
        progress(stored.revision, done, len(going))
        if dry_run or store.remove(stored.revision):
            removed.append(stored)
    ended = tuple(revision for revision in begun if dry_run or store.remove(revision))
    gone = {stored.revision for stored in removed}
    return Pruned(
        location=str(location),
        kept=tuple(stored for stored in revisions if stored.revision not in gone),
        removed=tuple(removed),
        ended=ended,
        dry_run=dry_run,
    )


def refuse_pinned(location: Location, reason: str) -> None:
    """Raise BAD_LOCATION for an address of one revision where the pointer is meant."""
    if location.revision:
        raise TrbError(
            Code.BAD_LOCATION,
            f"names a revision, but {reason}",
            where=str(location),
            remedy="leave @sha256:… out",
        )
