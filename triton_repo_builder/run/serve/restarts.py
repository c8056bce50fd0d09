"""Restart a server that ends by itself, on the same ports and with the same models."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.repository import Repository, composition
from triton_repo_builder.repository.journal import recovery, staging
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.engine import Progress, RunningServer
from triton_repo_builder.run.serve.loading.select import NOTHING

LOOK = 2.0
"""Seconds between two queries of the loaded models."""
QUIET = 300.0
"""Seconds of service that reset the count of restarts."""
LONGEST = 60.0
"""Longest pause in seconds before a restart; the first is 1 s, each further one twice as long."""


class KeptServer:
    """A server that ``wait`` restarts, at most ``limit`` times in a row.

    The models that were loaded at its end are loaded again, from the current repository.
    """

    server: RunningServer
    """The current server. A restart may change its process, container and log, not its addresses."""

    def __init__(
        self,
        start: Callable[[ServeOptions], RunningServer],
        root: Path,
        options: ServeOptions,
        limit: int,
        tell: Progress,
    ) -> None:
        """Start the server once. Raises ``TrbError``."""
        self.restarts = 0
        """Number of restarts so far."""
        self._start = start
        self._root = root
        self._options = options
        self._limit = limit
        self._tell = tell
        self._count = 0
        self._loaded: set[str] = set()
        self.server = start(options)
        self._ready = self._looked = time.monotonic()
        self._look()

    def wait(self, restarted: Callable[[], None]) -> None:
        """Return when the server was stopped; raise ``TrbError`` if its end is final, or it ended too often.

        ``restarted`` is called after each restart.
        """
        while True:
            try:
                return self.server.wait(self._look_sometimes)
            except TrbError as error:
                if self.server.final or not self._limit:
                    raise
                self._restart(error)
            restarted()

    def stop(self) -> None:
        """Stop the server and leave nothing behind."""
        self.server.stop()

    def _restart(self, error: TrbError) -> None:
        if time.monotonic() - self._ready >= QUIET:
            self._count = 0
        while True:
            if self._count >= self._limit:
                self._tell(f"ended again after {self._count} restarts (--restarts): it is not started again")
                raise error
            pause = min(2.0**self._count, LONGEST)
            self._count += 1
            self._tell(
                f"warning: {error.message}\nstarting it again in {pause:g} s ({self._count} of {self._limit})"
            )
            self.server.stop()
            time.sleep(pause)
            try:
                self._start_again()
                break
            except TrbError as failure:
                error = failure
            except OSError as failure:
                error = files.explain(failure, self._root, kept="no server runs")
        self.restarts += 1
        self._ready = time.monotonic()
        self._tell(f"serves again at {self.server.urls.http}")

    def _start_again(self) -> None:
        urls, log = self.server.urls, self.server.log
        # A promote or an apply that the end has interrupted puts its files back first.
        with staging.exclusive(self._root):
            for note in recovery.recover(self._root):
                self._tell(note)
            options = replace(
                self._options,
                http_port=urlsplit(urls.http).port or 0,
                grpc_port=urlsplit(f"//{urls.grpc}").port or 0,
                metrics_port=urlsplit(urls.metrics).port or 0,
                models=self._models(repository.read(self._root)),
                log_file=log,
                log_append=True,
            )
            self.server = self._start(options)

    def _models(self, repo: Repository) -> tuple[str, ...]:
        """The models to load: the outermost of those that were loaded."""
        present = [model.name for model in repo.models if model.name in self._loaded]
        for name in sorted(self._loaded.difference(present)):
            self._tell(f"warning: {name} is no longer in the repository: it is not loaded again")
        return composition.outermost(present, repo.steps_of) or NOTHING

    def _look_sometimes(self) -> None:
        if time.monotonic() - self._looked >= LOOK:
            self._look()
            self._looked = time.monotonic()

    def _look(self) -> None:
        """Record the loaded models: all that were ready, until they are unloaded."""
        with suppress(OSError):
            states = HttpClient(self.server.urls.http, LOOK).states()
            if states:  # empty: no answer, or nothing was ever loaded
                self._loaded = {
                    name
                    for name, (state, reason) in states.items()
                    if state == "READY" or (name in self._loaded and reason != "unloaded")
                }
