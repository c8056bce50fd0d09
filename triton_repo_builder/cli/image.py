"""``trb image build``: the slim image."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Off, Switch, Text
from triton_repo_builder.cli import console, declared, interrupts


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The image, and how it is built."""

    repository: Path | None = option(
        None,
        FilePath(file=False, exists=True),
        Topic.SERVER,
        "Include this model repository, as /models.",
        metavar="REPO",
    )
    tag: str | None = option(
        None,
        Text(),
        Topic.SERVER,
        "Name of the image.",
        default="trb-tritonserver:<release>-cpu",
        metavar="NAME:TAG",
    )
    base: str = option("debian:bookworm-slim", Text(), Topic.SERVER, "Image to start from: Debian or Ubuntu.")
    wheels: Path | None = option(
        None,
        FilePath(file=False, exists=True),
        Topic.SERVER,
        "Install from the wheels here.",
        default="downloaded by pip in a container, else here",
        metavar="DIR",
    )
    gateway: bool = option(
        False, Switch(), Topic.SERVER, "Include trb gateway, for a container of its own beside the server."
    )
    cache: bool = option(True, Off(), Topic.SERVER, "Run every step again.", flag="--no-cache")
    verbose: bool = option(False, Switch(), Topic.OUTPUT, "Show the output of the build.")
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@click.group("image")
def command() -> None:
    """A slim Docker image with a tritonserver for CPU, from Debian and PyPI packages.

    \b
    Examples:
      trb image build
      trb image build --repository model_repository --tag my-endpoint:1
      trb serve --image trb-tritonserver:24.10-cpu
    """


@command.command("build", cls=declared.TopicCommand)
@declared.options(options=ImageOptions)
def build(options: ImageOptions) -> int:
    """Build the image. It runs as user 1000, has a health check, and takes tritonserver's own options.

    Nothing else stays in Docker: no stage, no layer of a build that failed.

    \b
    Examples:
      trb image build
      trb image build --repository model_repository --tag my-endpoint:1
      docker run --rm -p 127.0.0.1:8000:8000 --shm-size 1g my-endpoint:1
      trb image build --wheels wheels
      trb image build --gateway --repository model_repository --tag my-endpoint:1
      docker run --rm --no-healthcheck --network container:SERVER my-endpoint:1 trb gateway --repo /models
    """
    from triton_repo_builder.base import releases
    from triton_repo_builder.run.serve.docker import images
    from triton_repo_builder.ship import container_image

    repository = options.repository
    if repository is not None:
        console.recovered(repository, whole=True)
    name = options.tag or f"{images.SLIM}:{releases.default().name}-cpu"
    request = container_image.ImageRequest(
        tag=name,
        base=options.base,
        repository=repository,
        wheels=options.wheels,
        cache=options.cache,
        gateway=options.gateway,
    )
    with interrupts.ctrl_c_in_background(), console.status() as spinner:
        image = container_image.build(
            request, (lambda line: console.echo(line, err=True)) if options.verbose else spinner
        )
    if options.as_json:
        console.echo(json.dumps({"tag": image.tag, "id": image.id, "size": image.size}))
        return 0
    console.echo(f"built {image.tag} ({image.size / 1e6:.0f} MB)")
    if repository is None:
        console.echo(f"serve a repository with it: trb serve --engine docker --image {image.tag}")
    else:
        console.echo(f"run it: docker run --rm -p 127.0.0.1:8000:8000 --shm-size 1g {image.tag}")
    return 0
