"""``trb serve --follow``: what is served, and the thread that follows the pointer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.cli import console

if TYPE_CHECKING:
    from triton_repo_builder.run.serve import RunningServer
    from triton_repo_builder.ship.deploy.newest import Newest
    from triton_repo_builder.ship.stores import Location
    from triton_repo_builder.ship.stores.signing_keys import Trust


PATIENCE = 20.0
"""Seconds for a change to be undone whose server is stopped."""


@dataclass(frozen=True, kw_only=True)
class Following:
    """A pointer, and the revision with which the server starts."""

    location: Location
    start: Location
    interval: float
    trust: Trust | None
    newest: Newest | None = None
    """Refuses revisions that were signed before the newest one."""

    @contextmanager
    def started(self, server: RunningServer, root: Path) -> Iterator[None]:
        """Follow the pointer for as long as the ``with`` block runs; then the server is stopped, too."""
        from triton_repo_builder.ship.deploy.follow import Follower

        follower = Follower(
            self.location,
            root,
            server.urls,
            revision=self.start.revision,
            interval=self.interval,
            trust=self.trust,
            newest=self.newest,
            tell=console.line,
        )
        follower.start()
        try:
            yield
        finally:
            follower.interrupt()
            server.stop()  # with it ends what the follower waits for
            follower.join(PATIENCE)


def prepared(
    repo: Path | Location,
    engine: str,
    models: tuple[str, ...],
    public_keys: Path | None,
    interval: float,
    *,
    refuse_older: bool,
) -> Following:
    """What --follow needs. Raises ``UsageError``, and ``TrbError`` of the store."""
    from triton_repo_builder.run import serve
    from triton_repo_builder.ship import stores
    from triton_repo_builder.ship.deploy.newest import Newest
    from triton_repo_builder.ship.stores import signing_keys

    if isinstance(repo, Path):
        raise click.UsageError("--follow needs the URL of a pushed repository; trb apply is for a folder.")
    if repo.revision:
        raise click.UsageError("--follow needs the pointer: leave @sha256:… out.")
    if models:
        raise click.UsageError("--follow serves every endpoint of the revision: leave --load out.")
    if engine == "docker" or (engine == "auto" and serve.choose() == "docker"):
        raise click.UsageError("--follow needs the embedded engine.")
    trust = None if public_keys is None else signing_keys.read_trust(public_keys)
    if refuse_older and trust is None:
        raise click.UsageError(
            "--refuse-older needs --require-signature: the order is part of what is signed."
        )
    start = stores.pinned(repo, trust)
    newest = Newest(repo, trust) if refuse_older and trust is not None else None
    if newest is not None:
        newest.check(start)
    return Following(location=repo, start=start, interval=interval, trust=trust, newest=newest)
