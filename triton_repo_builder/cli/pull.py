"""``trb pull``: a pushed repository into a folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, FILLED, SIGNATURE_HELP, Place


@click.command("pull")
@click.argument("url", type=FILLED)
@click.argument("folder", type=Place(), default=DEFAULT_REPOSITORY)
@click.option("--force", is_flag=True, help="Replace the folder's content.")
@click.option(
    "--require-signature", "public_keys", type=Place(dir_okay=False), metavar="FILE", help=SIGNATURE_HELP
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(url: str, folder: Path, force: bool, public_keys: Path | None, as_json: bool) -> int:
    """Download the revision that URL points to into FOLDER (default: model_repository).

    Every file is verified by its digest; the folder appears complete or not at all. URL@sha256:… names one
    revision rather than the current one.

    \b
    Examples:
      trb pull s3://models/minilm
      trb pull oci://registry.example.com/models/minilm:1.4 restored
      trb pull s3://models/minilm --require-signature release.pub
    """
    from triton_repo_builder.ship import stores
    from triton_repo_builder.ship.stores import signing_keys

    location = stores.parse(url)
    trust = None if public_keys is None else signing_keys.read_trust(public_keys)
    console.recovered(folder)
    with console.progress("bytes") as progress:
        pulled = stores.pull(location, folder, progress, force=force, trust=trust)
    signed = f", signed by {pulled.signed_by}" if pulled.signed_by else ""
    if as_json:
        console.echo(json.dumps(asdict(pulled), ensure_ascii=False))
    elif pulled.changed:
        console.echo(
            f"{counted(pulled.files, 'file')}, {pulled.bytes:,} bytes, all verified, in {pulled.target}"
        )
        console.echo(f"revision {pulled.revision}{signed}")
    else:
        console.echo(f"{pulled.target} holds revision {pulled.revision} already{signed}")
    return 0
