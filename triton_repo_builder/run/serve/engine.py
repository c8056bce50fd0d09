"""What every engine offers: start a server on a repository, and a handle to the running server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

from triton_repo_builder.run.client import Urls

Progress = Callable[[str], None]
"""Receives one line about what is going on; may be called from another thread once the server runs."""


@dataclass(frozen=True, kw_only=True)
class ContainerOptions:
    """Options of the Docker engine only."""

    image: str = ""
    """Any image with tritonserver; empty: ``nvcr.io/nvidia/tritonserver:<release>-py3``."""
    release: str = ""
    """``YY.MM``; empty: the release that releases.toml names."""
    pull: str = "missing"
    """``missing``, ``always`` or ``never``."""
    gpus: str = "auto"
    """``auto``: all that Docker can give; ``all``, ``none`` or device numbers (``0,1``)."""
    user: str = ""
    """``UID:GID`` or ``image`` for the image's own; empty: never root."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How a server is started. A port of None is Triton's own (8000, 8001, 8002); 0 is any free one."""

    host: str = "127.0.0.1"
    http_port: int | None = None
    grpc_port: int | None = None
    metrics_port: int | None = None
    load_timeout: float = 300.0
    """Seconds in which all models must be ready."""
    models: tuple[str, ...] = ()
    """Names to load, with what they need; empty for all, ``("none",)`` for nothing yet."""
    log_file: Path | None = None
    """File of the server's output; by default a temporary one that is kept only after a failure."""
    log_append: bool = False
    """Go on at the end of this file; otherwise it is emptied first."""
    log_verbose: int = 0
    exit_timeout: int = 10
    """Seconds that running requests get to finish when the server is stopped."""
    extra: tuple[str, ...] = ()
    """More options of tritonserver, ``--name=value``. Relative paths mean the current folder."""
    container: ContainerOptions = ContainerOptions()
    models_url: str = ""
    """``s3://…`` that the server itself reads its models from; the local folder then only describes them."""
    admin_key: str = field(default="", repr=False)
    """The key that restricts the administrative APIs (``admin_apis.py``); empty on another address than
    loopback: a random one."""
    open_apis: bool = False
    """Leave these APIs open on any address."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A repository that can be read here, and the location from which the server loads it."""

    path: Path
    models_url: str = ""
    """``s3://…`` of one revision; empty: the server reads ``path``."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A model that does not serve, and the real cause, as far as server, log and /proc show it."""

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
        """One line: which server this is, and what runs its models."""

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
        """Whether its end is: somebody else stopped it, or its Docker daemon is gone."""

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
