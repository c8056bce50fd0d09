"""Run a real tritonserver on a repository: engines behind one small interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.options import ContainerOptions, ServeOptions
from triton_repo_builder.run.serve import admin_apis
from triton_repo_builder.run.serve.docker import daemon
from triton_repo_builder.run.serve.docker.engine import DockerEngine
from triton_repo_builder.run.serve.embedded.engine import EmbeddedEngine
from triton_repo_builder.run.serve.engine import Engine, Failure, Progress, RunningServer
from triton_repo_builder.run.serve.restarts import KeptServer

__all__ = [
    "ENGINES",
    "ContainerOptions",
    "Engine",
    "Failure",
    "KeptServer",
    "Progress",
    "RunningServer",
    "ServeOptions",
    "Urls",
    "keep",
    "start",
]

SUMMARIES = "--metrics-config=summary_latencies=true"
"""Option of tritonserver: percentiles of the last minute on the metrics page."""
ENGINES: dict[str, Engine] = {"embedded": EmbeddedEngine(), "docker": DockerEngine()}
"""Engines by name; ``auto`` uses the first that this machine has."""


def start(
    repository: Path,
    options: ServeOptions | None = None,
    *,
    engine: str = "auto",
    progress: Progress | None = None,
) -> RunningServer:
    """Start a server on a repository and return once every model is ready."""
    begin, options = _prepared(repository, options or ServeOptions(), engine, progress)
    return begin(options)


def keep(
    repository: Path, options: ServeOptions, *, restarts: int, engine: str = "auto", progress: Progress
) -> KeptServer:
    """``start``, with up to ``restarts`` restarts of a server that ends by itself (restarts.py)."""
    begin, options = _prepared(repository, options, engine, progress)
    return KeptServer(begin, repository, options, restarts, progress)


def _prepared(
    repository: Path, options: ServeOptions, engine: str, progress: Progress | None
) -> tuple[Callable[[ServeOptions], RunningServer], ServeOptions]:
    """Engine and options of the server."""
    name = choose() if engine == "auto" else engine
    if name not in ENGINES:
        raise TrbError(
            Code.USAGE, f"there is no engine '{name}'", remedy=f"choose one of: auto, {', '.join(ENGINES)}"
        )
    options = admin_apis.restricted(options, progress or (lambda text: None))
    if options.percentiles:
        options = replace(options, extra=(*options.extra, SUMMARIES))
    return lambda options: ENGINES[name].start(repository, options, progress), options


def choose() -> str:
    """``embedded`` if it is installed, else ``docker`` if a daemon answers. Raises ``TrbError``."""
    from triton_repo_builder.run.serve.embedded import install

    try:
        install.find()
    except TrbError as missing:
        try:
            daemon.connect().close()
        except TrbError as refused:
            raise TrbError(
                Code.ENGINE_MISSING,
                f"nothing can run a tritonserver here: {missing.message}, and {refused.message}",
                remedy=f"{missing.remedy}; or for Docker: {refused.remedy}",
            ) from None
        return "docker"
    return "embedded"
