"""Revision that ``trb serve`` serves, and the thread that follows a pointer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Real, Switch
from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import SIGNATURE_HELP

if TYPE_CHECKING:
    from triton_repo_builder.run.serve import RunningServer
    from triton_repo_builder.ship.deploy.newest import Newest
    from triton_repo_builder.ship.stores import Location
    from triton_repo_builder.ship.stores.signing_keys import Trust


PATIENCE = 20.0
"""Seconds to roll a change back when its server is stopped."""


@dataclass(frozen=True, kw_only=True)
class RevisionOptions:
    """Restrictions on the served content."""

    verify: bool = option(
        False,
        Switch(),
        Topic.REPOSITORY,
        "First compare every file with manifest.json; refuse if one was altered.",
    )
    public_keys: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.REPOSITORY,
        SIGNATURE_HELP,
        flag="--require-signature",
        metavar="FILE",
    )
    follow: bool = option(
        False,
        Switch(),
        Topic.REPOSITORY,
        "For a URL: take up each new revision, proven by trb smoke, or stay.",
    )
    refuse_older: bool = option(
        False,
        Switch(),
        Topic.REPOSITORY,
        "With --follow and --require-signature: refuse what was signed before a revision that was seen.",
    )
    interval: float = option(
        30.0,
        Real(1, 86_400),
        Topic.REPOSITORY,
        "With --follow: time between two looks at the pointer.",
        metavar="SECONDS",
    )

    def checked(self) -> RevisionOptions:
        """The options. Raises ``UsageError``."""
        if self.refuse_older and not self.follow:
            raise click.UsageError("--refuse-older goes with --follow.")
        return self


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
        """Follow the pointer during the ``with`` block; at its end the server is stopped, too."""
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
    repo: Path | Location, engine: str, models: tuple[str, ...], options: RevisionOptions
) -> Following:
    """The pointer to follow, resolved once. Raises ``UsageError``, and ``TrbError`` of the store."""
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
    trust = None if options.public_keys is None else signing_keys.read_trust(options.public_keys)
    if options.refuse_older and trust is None:
        raise click.UsageError(
            "--refuse-older needs --require-signature: the order is part of what is signed."
        )
    start = stores.pinned(repo, trust)
    newest = Newest(repo, trust) if options.refuse_older and trust is not None else None
    if newest is not None:
        newest.check(start)
    return Following(location=repo, start=start, interval=options.interval, trust=trust, newest=newest)
