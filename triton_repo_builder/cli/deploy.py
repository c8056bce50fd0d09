"""``trb deploy``: the file that says how a repository is deployed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Switch, Text
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The deployment as far as it is known, and the place of the file."""

    output: Path = option(
        Path("deploy.toml"), FilePath(folder=False), Topic.OUTPUT, "The file.", also=("-o",), metavar="FILE"
    )
    force: bool = option(False, Switch(), Topic.OUTPUT, "Replace FILE.")
    name: str = option(
        "",
        Text(),
        Topic.DEPLOYMENT,
        "Name of the deployment.",
        default="the first endpoint's",
        metavar="NAME",
    )
    image: str = option(
        "", Text(), Topic.DEPLOYMENT, "Image with a tritonserver.", default="NVIDIA's", metavar="NAME"
    )
    gateway_image: str = option(
        "",
        Text(),
        Topic.DEPLOYMENT,
        "Image of trb image build --gateway.",
        default="no gateway",
        metavar="NAME",
    )
    source: str = option(
        "folder",
        Text(),
        Topic.DEPLOYMENT,
        "Where servers get the repository: folder, image, or a URL; a bucket's gets the revision of REPO.",
        metavar="PLACE",
    )


@click.group("deploy")
def command() -> None:
    """Say in one file how a repository is deployed.

    \b
    Examples:
      trb deploy init
      trb export compose
    """


@command.command("init", cls=declared.TopicCommand)
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@declared.options(options=InitOptions)
def init(repo: Path, options: InitOptions) -> None:
    """Write deploy.toml for REPO (default: model_repository), with every key and its meaning.

    It states the revision of REPO, so that an export refuses a repository that changed since. A key for the
    administrative APIs is made beside it, in the file admin_key; do not commit that.

    \b
    Examples:
      trb deploy init
      trb deploy init --image registry.example/bert:3 --source image
      trb deploy init --source s3://models/bert
    """
    from triton_repo_builder.ship.targets import starter

    console.recovered(repo, write=False, whole=True)
    written, notes = starter.write(
        repo,
        options.output,
        name=options.name,
        image=options.image,
        gateway=options.gateway_image,
        source=options.source,
        force=options.force,
    )
    for path, about in written:
        console.echo(f"wrote    {path}{about}")
    for line in notes:
        console.note(line)
