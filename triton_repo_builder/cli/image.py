"""``trb image build``: the slim image."""

from __future__ import annotations

import json
from pathlib import Path

import click

from triton_repo_builder.cli import console, interrupts
from triton_repo_builder.cli.options import Place


@click.group("image")
def command() -> None:
    """A slim Docker image with a tritonserver for CPU, from Debian and PyPI packages.

    \b
    Examples:
      trb image build
      trb image build --repository model_repository --tag my-endpoint:1
      trb serve --image trb-tritonserver:24.10-cpu
    """


@command.command("build")
@click.option(
    "--repository",
    type=Place(exists=True, file_okay=False),
    metavar="REPO",
    help="Include this model repository, as /models.",
)
@click.option(
    "--tag", metavar="NAME:TAG", help="Name of the image.  [default: trb-tritonserver:<release>-cpu]"
)
@click.option(
    "--base", default="debian:bookworm-slim", show_default=True, help="Image to start from: Debian or Ubuntu."
)
@click.option(
    "--wheels",
    type=Place(exists=True, file_okay=False),
    metavar="DIR",
    help="Install from the wheels here.  [default: downloaded by pip in a container, else here]",
)
@click.option("--no-cache", is_flag=True, help="Run every step again.")
@click.option("--verbose", is_flag=True, help="Show the output of the build.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def build(
    repository: Path | None,
    tag: str | None,
    base: str,
    wheels: Path | None,
    no_cache: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Build the image. It runs as user 1000, has a health check, and takes tritonserver's own options.

    Nothing else stays in Docker: no stage, no layer of a build that failed.

    \b
    Examples:
      trb image build
      trb image build --repository model_repository --tag my-endpoint:1
      docker run --rm -p 127.0.0.1:8000:8000 --shm-size 1g my-endpoint:1
      trb image build --wheels wheels
    """
    from triton_repo_builder.base import releases
    from triton_repo_builder.run.serve.docker import images
    from triton_repo_builder.ship import container_image

    if repository is not None:
        console.recovered(repository, whole=True)
    name = tag or f"{images.SLIM}:{releases.default().name}-cpu"
    request = container_image.Request(
        tag=name, base=base, repository=repository, wheels=wheels, cache=not no_cache
    )
    with interrupts.ctrl_c_in_background(), console.status() as spinner:
        image = container_image.build(
            request, (lambda line: console.echo(line, err=True)) if verbose else spinner
        )
    if as_json:
        console.echo(json.dumps({"tag": image.tag, "id": image.id, "size": image.size}))
        return 0
    console.echo(f"built {image.tag} ({image.size / 1e6:.0f} MB)")
    if repository is None:
        console.echo(f"serve a repository with it: trb serve --engine docker --image {image.tag}")
    else:
        console.echo(f"run it: docker run --rm -p 127.0.0.1:8000:8000 --shm-size 1g {image.tag}")
    return 0
