"""A repository from any store, for as long as it is served."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.run.serve.engine import Opened
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import Location
from triton_repo_builder.ship.stores.objects import Objects
from triton_repo_builder.ship.stores.signing_keys import Trust
from triton_repo_builder.ship.stores.store import Progress


@contextlib.contextmanager
def copied(location: Location, progress: Progress) -> Iterator[Path]:
    """A temporary copy of a stored repository, pushed by ``trb`` or put there by others."""
    with staging.temporary("copied") as folder:
        target = folder / location.name
        target.mkdir()
        store = stores.store(location)
        with staging.filling():
            try:
                store.pull(target, progress)
            except TrbError as error:
                if error.code is not Code.NOT_PUSHED or not isinstance(store, Objects):
                    raise
                if not store.copy_all(target, progress):
                    raise
        yield target


@contextlib.contextmanager
def opened(
    location: Path | Location, progress: Progress, *, direct: bool, trust: Trust | None = None
) -> Iterator[Opened]:
    """A repository for as long as it is served.

    With ``direct`` a server reads the models itself from a store that Triton supports; else the whole
    revision is pulled and verified. With ``trust`` it is always pulled: a server does not check what it reads
    against the signature.
    """
    if isinstance(location, Path):
        yield Opened(path=location)
        return
    if trust is not None:
        location, _ = stores.verified(location, trust)
    with staging.temporary("pulled") as folder:
        target = folder / location.name
        target.mkdir()
        store = stores.store(location)
        with staging.filling():
            url = store.serve_from(target, progress) if direct and trust is None else ""
            if not url:
                store.pull(target, progress)
        yield Opened(path=target, models_url=url)
