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
    from triton_repo_builder.serve import RunningServer
    from triton_repo_builder.stores import Location
    from triton_repo_builder.stores.signature import Trust


@dataclass(frozen=True, kw_only=True)
class Following:
    """A pointer, and the revision with which the server starts."""

    location: Location
    start: Location
    interval: float
    trust: Trust | None

    @contextmanager
    def started(self, server: RunningServer, root: Path) -> Iterator[None]:
        """Follow the pointer for as long as the ``with`` block runs."""
        from triton_repo_builder.deploy.follow import Follower

        follower = Follower(
            self.location,
            root,
            server.urls,
            revision=self.start.revision,
            interval=self.interval,
            trust=self.trust,
            tell=lambda text: console.echo(text, err=True),
        )
        follower.start()
        try:
            yield
        finally:
            follower.stop()


def prepared(
    repo: Path | Location, engine: str, models: tuple[str, ...], public_keys: Path | None, interval: float
) -> Following:
    """What --follow needs. Raises ``UsageError``, and ``TrbError`` of the store."""
    from triton_repo_builder import serve, stores
    from triton_repo_builder.stores import signature

    if isinstance(repo, Path):
        raise click.UsageError("--follow needs the URL of a pushed repository; trb apply is for a folder.")
    if repo.revision:
        raise click.UsageError("--follow needs the pointer: leave @sha256:… out.")
    if models:
        raise click.UsageError("--follow serves every endpoint of the revision: leave --load out.")
    if engine == "docker" or (engine == "auto" and serve.choose() == "docker"):
        raise click.UsageError("--follow needs the embedded engine.")
    trust = None if public_keys is None else signature.read_trust(public_keys)
    start = stores.pinned(repo, trust)
    return Following(location=repo, start=start, interval=interval, trust=trust)
