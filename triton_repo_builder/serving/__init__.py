"""Run a real tritonserver on a repository: engines behind one small interface."""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.serving.embedded import EmbeddedEngine
from triton_repo_builder.serving.engine import Engine, Failure, Progress, RunningServer, ServeOptions, Urls

__all__ = [
    "ENGINES",
    "Engine",
    "Failure",
    "Progress",
    "RunningServer",
    "ServeOptions",
    "Urls",
    "start",
]

ENGINES: dict[str, Engine] = {"embedded": EmbeddedEngine()}
"""Every engine by its name; ``auto`` takes the first."""


def start(
    repository: Path,
    options: ServeOptions | None = None,
    *,
    engine: str = "auto",
    progress: Progress | None = None,
) -> RunningServer:
    """Start a server on a repository and return once every model is ready."""
    name = next(iter(ENGINES)) if engine == "auto" else engine
    if name not in ENGINES:
        raise TrbError(
            Exit.USAGE, f"there is no engine '{name}'", remedy=f"choose one of: auto, {', '.join(ENGINES)}"
        )
    return ENGINES[name].start(repository, options or ServeOptions(), progress)
