"""Options of commands that start a server (its engine) or use a running one (its address)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, changed, nested, option
from triton_repo_builder.base.option_values import Choice, Text
from triton_repo_builder.cli import console, interrupts
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Address
from triton_repo_builder.run.options import ContainerOptions, ServeOptions

if TYPE_CHECKING:
    from triton_repo_builder.repository import Repository
    from triton_repo_builder.run.client import Urls
    from triton_repo_builder.run.serve import RunningServer
    from triton_repo_builder.run.serve.engine import Opened
    from triton_repo_builder.ship.stores import Location


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine, and for Docker its container."""

    name: str = option(
        "auto",
        Choice(("auto", "embedded", "docker")),
        Topic.ENGINE,
        "What runs tritonserver; auto: embedded if installed, else Docker.",
        flag="--engine",
    )
    host: str = option("127.0.0.1", Text(), Topic.ENGINE, "Address to listen on; 0.0.0.0: all interfaces.")
    container: ContainerOptions = nested(ContainerOptions)

    def checked(self) -> EngineOptions:
        """The options, with engine docker if a Docker-only option is set. Raises ``UsageError``."""
        if self.container.release == "auto":
            self = replace(self, container=replace(self.container, release=""))
        docker_only = [flag for flag, _ in changed(self.container)]
        if not self.host:
            raise click.BadParameter("is empty; 127.0.0.1 is this machine alone", param_hint="--host")
        if self.container.image and self.container.release:
            raise click.UsageError("--image and --triton-release both choose the image: use one of them.")
        if docker_only and self.name == "embedded":
            raise click.UsageError(
                f"{docker_only[0]} applies to Docker only: leave it out, or use --engine docker."
            )
        return replace(self, name="docker") if docker_only else self


def repository(path: Path | None, *, needed: bool) -> Repository | None:
    """The repository at the path or the default one; None if that is missing and not ``needed``."""
    from triton_repo_builder import repository

    if path is None and not needed and not DEFAULT_REPOSITORY.is_dir():
        return None
    console.recovered(path or DEFAULT_REPOSITORY)
    return repository.read(path or DEFAULT_REPOSITORY)


@contextmanager
def opened(
    location: Path | Location, engine: EngineOptions, *, direct: bool = True, signed_by: Path | None = None
) -> Iterator[Opened]:
    """A repository on disk or at a URL; the embedded server reads an S3 bucket by itself if ``direct``.

    With a file of public keys, ``signed_by``, only a revision at a URL that one of them signed.
    """
    if signed_by is not None and isinstance(location, Path):
        raise click.UsageError("--require-signature is for the URL of a pushed repository, not for a folder.")
    from triton_repo_builder.run.serve.engine import Opened

    if isinstance(location, Path):
        console.recovered(location)
        yield Opened(path=location)
        return
    from triton_repo_builder.run import serve
    from triton_repo_builder.ship.stores import open, signing_keys

    trust = None if signed_by is None else signing_keys.read_trust(signed_by)
    name = serve.choose() if engine.name == "auto" else engine.name
    with interrupts.ctrl_c_in_background(), ExitStack() as stack:
        with console.progress("bytes") as progress:
            repository = stack.enter_context(
                open.opened(location, progress, direct=direct and name == "embedded", trust=trust)
            )
        yield repository


@contextmanager
def running(
    repository: Path, engine: EngineOptions, models_url: str = "", *, models: tuple[str, ...] = ()
) -> Iterator[RunningServer]:
    """A server on free ports during the ``with`` block, with these models and their steps, or with all."""
    from triton_repo_builder.run import serve

    options = ServeOptions(
        host=engine.host,
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        models=models,
        container=engine.container,
        models_url=models_url,
    )
    with interrupts.ctrl_c_in_background():
        with console.status() as progress:
            server = serve.start(repository, options, engine=engine.name, progress=progress)
        with server:
            yield server


@contextmanager
def reached(
    repository: Repository | None,
    address: Address,
    engine: EngineOptions,
    models_url: str = "",
    *,
    models: tuple[str, ...] = (),
) -> Iterator[tuple[Urls, int | None]]:
    """The server at the address, or a new one on the repository or these models of it, with its process."""
    if address.url is not None:
        yield address.urls(), None
        return
    assert repository is not None
    with running(repository.path, engine, models_url, models=models) as server:
        yield server.urls, server.pid
