"""``trb push``: a repository to a bucket or a registry."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Filled, Place
from triton_repo_builder.text import counted

if TYPE_CHECKING:
    from triton_repo_builder.stores import Pushed


@click.command("push")
@click.argument("url", type=Filled())
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@click.option("--force", is_flag=True, help="Push despite errors of trb check.")
@click.option("--dry-run", is_flag=True, help="Show what would be uploaded; upload nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(url: str, repo: Path, force: bool, dry_run: bool, as_json: bool) -> int:
    """Upload REPO (default: model_repository) to URL, so that readers see the old revision or the new one.

    URL is s3://BUCKET/PREFIX, s3://HOST:PORT/BUCKET/PREFIX, gs://…, az://… or oci://REGISTRY/NAME:TAG. Each
    revision is stored under the digest of its content and never overwritten; a pointer (current.json, or the
    tag) moves last. Files already there are verified and not sent again. Credentials come from where the
    libraries look: environment, profiles, docker login. See docs/push.md.

    \b
    Examples:
      trb push s3://models/minilm
      trb push s3://127.0.0.1:9000/models/minilm my_repository --dry-run
      trb push oci://registry.example.com/models/minilm:1.4
    """
    from triton_repo_builder import stores

    location = stores.parse(url)
    console.recovered(repo)
    with console.progress("bytes") as progress:
        pushed = stores.push(repo, location, progress, force=force, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(asdict(pushed), ensure_ascii=False))
    else:
        _print(pushed)
    return 0


def _print(pushed: Pushed) -> None:
    for line in pushed.accepted:
        console.note(line)
    verb = "would send" if pushed.dry_run else "sent"
    what = f"{verb} {len(pushed.sent)} new, {pushed.sent_bytes:,} bytes" if pushed.sent else "nothing to send"
    copied = f", {len(pushed.copied)} copied within the bucket" if pushed.copied else ""
    click.echo(f"{counted(pushed.files, 'file')}, {pushed.bytes:,} bytes; {what}{copied}")
    if pushed.dry_run:
        click.echo(f"the revision would be {pushed.revision}")
    elif pushed.previous == pushed.revision:
        click.echo(f"{pushed.location} is this revision already")
    else:
        click.echo(f"{pushed.location} is now {pushed.revision}")
    if not pushed.dry_run:
        click.echo(f"this revision for ever: {pushed.pinned}")
    if pushed.previous and pushed.previous != pushed.revision:
        click.echo(f"before: {pushed.previous}")
