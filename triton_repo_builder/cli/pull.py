"""``trb pull``: a pushed repository into a folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Filled, Place
from triton_repo_builder.text import counted


@click.command("pull")
@click.argument("url", type=Filled())
@click.argument("folder", type=Place(), default=DEFAULT_REPOSITORY)
@click.option("--force", is_flag=True, help="Replace the folder's content.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(url: str, folder: Path, force: bool, as_json: bool) -> int:
    """Download the revision that URL points to into FOLDER (default: model_repository).

    Every file is verified by its digest; the folder appears complete or not at all. URL@sha256:… names one
    revision rather than the current one.

    \b
    Examples:
      trb pull s3://models/minilm
      trb pull oci://registry.example.com/models/minilm:1.4 restored
    """
    from triton_repo_builder import stores

    location = stores.parse(url)
    with console.progress("bytes") as progress:
        pulled = stores.pull(location, folder, progress, force=force)
    if as_json:
        click.echo(json.dumps(asdict(pulled), ensure_ascii=False))
    elif pulled.changed:
        click.echo(
            f"{counted(pulled.files, 'file')}, {pulled.bytes:,} bytes, all verified, in {pulled.target}"
        )
        click.echo(f"revision {pulled.revision}")
    else:
        click.echo(f"{pulled.target} holds revision {pulled.revision} already")
    return 0
