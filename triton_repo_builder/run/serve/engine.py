"""Interface of every engine: start a server on a repository, and a handle to the running server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.options import ServeOptions

Progress = Callable[[str], None]
"""Receives a line of progress; may be called from another thread once the server runs."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A local repository, and the location from which the server loads it."""

    path: Path
    models_url: str = ""
    """``s3://…`` of one revision; empty: the server reads ``path``."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A model that is not ready, and the real cause, if server, log or /proc show it."""

    model: str
    cause: str
    detail: str = ""


class RunningServer(Protocol):
    """A server that was ready once. Leaving the ``with`` block stops it."""

    @property
    def urls(self) -> Urls:
        """Addresses of the server."""

    @property
    def engine(self) -> str:
        """Name of the engine that runs it."""

    @property
    def about(self) -> str:
        """A line with the server and the runtime of its models."""

    @property
    def pid(self) -> int | None:
        """Process id of the server, if it is a process of this machine."""

    @property
    def container(self) -> str:
        """Name of its container, or empty."""

    @property
    def log(self) -> Path:
        """The server's output."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Names of the models that clients are meant to call."""

    def failures(self) -> tuple[Failure, ...]:
        """Models that broke while the server ran and could not be brought back."""

    @property
    def final(self) -> bool:
        """Whether a restart is useless: another process stopped the server, or its Docker daemon is gone."""

    def wait(self, tick: Callable[[], None] = ...) -> None:
        """Return when the server was stopped; raise ``TrbError`` if it ended for another reason.

        ``tick`` is called ten times a second while it runs.
        """

    def stop(self) -> None:
        """Stop the server and leave nothing behind; harmless when it already ended."""

    def __enter__(self) -> RunningServer:
        """The server itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""


class Engine(Protocol):
    """One way to run tritonserver."""

    def start(
        self, repository: Path, options: ServeOptions, progress: Progress | None = None
    ) -> RunningServer:
        """Start and return once every model is ready; raise ``TrbError`` and leave nothing otherwise."""
