"""Options of every command that starts a server: which engine, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from triton_repo_builder.cli import console, interrupts

if TYPE_CHECKING:
    from triton_repo_builder.run.serve import ContainerOptions, RunningServer
    from triton_repo_builder.run.serve.engine import Opened
    from triton_repo_builder.ship.stores import Location

NAMES = ("auto", "embedded", "docker")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The engine, and for Docker its container."""

    name: str = "auto"
    host: str = "127.0.0.1"
    image: str = ""
    release: str = ""
    pull: str = "missing"
    gpus: str = "auto"
    user: str = ""

    def checked(self) -> Choice:
        """The choice, with engine docker if an option that only Docker has is set. Raises ``UsageError``."""
        docker_only = [
            option
            for option, value, default in (
                ("--image", self.image, ""),
                ("--triton-release", self.release, ""),
                ("--pull", self.pull, "missing"),
                ("--gpus", self.gpus, "auto"),
                ("--container-user", self.user, ""),
            )
            if value != default
        ]
        if not self.host:
            raise click.BadParameter("is empty; 127.0.0.1 is this machine alone", param_hint="--host")
        if self.image and self.release:
            raise click.UsageError("--image and --triton-release both choose the image: use one of them.")
        if docker_only and self.name == "embedded":
            raise click.UsageError(
                f"{docker_only[0]} applies to Docker only: leave it out, or use --engine docker."
            )
        return replace(self, name="docker") if docker_only else self

    def container(self) -> ContainerOptions:
        """The options of the Docker engine."""
        from triton_repo_builder.run.serve import ContainerOptions

        return ContainerOptions(
            image=self.image, release=self.release, pull=self.pull, gpus=self.gpus, user=self.user
        )

    def arguments(self) -> list[str]:
        """The same choice as command-line arguments."""
        values = {
            "--engine": self.name,
            "--host": self.host,
            "--image": self.image,
            "--triton-release": self.release,
            "--pull": self.pull,
            "--gpus": self.gpus,
            "--container-user": self.user,
        }
        return [f"{option}={value}" for option, value in values.items() if value]


@contextmanager
def opened(
    location: Path | Location, choice: Choice, *, direct: bool = True, signed_by: Path | None = None
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
    name = serve.choose() if choice.name == "auto" else choice.name
    with interrupts.ctrl_c_in_background(), ExitStack() as stack:
        with console.progress("bytes") as progress:
            repository = stack.enter_context(
                open.opened(location, progress, direct=direct and name == "embedded", trust=trust)
            )
        yield repository


@contextmanager
def running(repository: Path, choice: Choice, models_url: str = "") -> Iterator[RunningServer]:
    """A server on free ports, for as long as the ``with`` block runs."""
    from triton_repo_builder.run import serve

    options = serve.ServeOptions(
        host=choice.host,
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        container=choice.container(),
        models_url=models_url,
    )
    with interrupts.ctrl_c_in_background():
        with console.status() as progress:
            server = serve.start(repository, options, engine=choice.name, progress=progress)
        with server:
            yield server


def options(function: Command) -> Command:
    """Add the options; the command gets them as one ``engine: Choice``."""

    @wraps(function)
    def collected(
        *args: Any,
        engine: str,
        host: str,
        image: str | None,
        triton_release: str | None,
        pull: str,
        gpus: str,
        container_user: str | None,
        **rest: Any,
    ) -> Any:
        choice = Choice(
            name=engine,
            host=host,
            image=image or "",
            release=triton_release or "",
            pull=pull,
            gpus=gpus,
            user=container_user or "",
        )
        return function(*args, engine=choice.checked(), **rest)

    decorated: Any = collected
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    result: Command = decorated
    return result


_OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(NAMES),
        default="auto",
        show_default=True,
        help="What runs tritonserver; auto: embedded if installed, else Docker.",
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Address to listen on; 0.0.0.0: all interfaces.",
    ),
    click.option(
        "--image",
        metavar="NAME",
        help="Docker: image with a tritonserver.  [default: nvcr.io/nvidia/tritonserver:<release>-py3]",
    ),
    click.option("--triton-release", metavar="YY.MM", help="Docker: release of the official image."),
    click.option(
        "--pull",
        type=click.Choice(["missing", "always", "never"]),
        default="missing",
        show_default=True,
        help="Docker: when to pull the image.",
    ),
    click.option(
        "--gpus",
        metavar="auto|all|none|N,N",
        default="auto",
        show_default=True,
        help="Docker: GPUs for the container; auto: all that Docker has.",
    ),
    click.option(
        "--container-user",
        metavar="UID:GID|image",
        help="Docker: user of the server process.  [default: this user, 1000:1000 for root]",
    ),
)
