"""``trb apply``: bring a running server to the state of a revision."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.option_values import FilePath, Switch, Text
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import FILLED, SIGNATURE_HELP, Address
from triton_repo_builder.ship.options import ApplyOptions

if TYPE_CHECKING:
    from triton_repo_builder.ship.deploy.apply import Applied


@dataclass(frozen=True, kw_only=True)
class ChangedServer(Address):
    """The running server."""

    url: str = field(metadata=declare(Text(), Topic.RUNNING, "HTTP address of the running server."))


@dataclass(frozen=True, kw_only=True)
class RevisionPlace:
    """The folder that receives the revision, the revision's signature, and the form of the result."""

    to: Path | None = option(
        None,
        FilePath(),
        Topic.REPOSITORY,
        "The folder that the server reads its models from.",
        default="found for a server on this machine",
        metavar="FOLDER",
    )
    public_keys: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.REPOSITORY,
        SIGNATURE_HELP,
        flag="--require-signature",
        metavar="FILE",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@click.command("apply", cls=declared.TopicCommand)
@click.argument("revision", type=FILLED, metavar="DIR|URL|COMMIT")
@declared.options(server=ChangedServer, place=RevisionPlace, options=ApplyOptions)
def command(revision: str, server: ChangedServer, place: RevisionPlace, options: ApplyOptions) -> int:
    """Make a running server serve what DIR|URL|COMMIT says, and nothing if it does already.

    Shows for each endpoint what differs, puts the revision into the folder that the server reads (your own
    files there stay), loads what is new, changes over without losing a request what is other, each proven
    by trb smoke, and unloads what the revision no longer has. An endpoint that fails goes back to what it
    was; the others are applied, and the exit code is 9. The server must run in explicit mode, as trb serve
    does.

    \b
    Examples:
      trb apply model_repository --url http://localhost:8000
      trb apply s3://models/minilm --url http://localhost:8000 --dry-run
      trb apply s3://models/minilm --url http://localhost:8000 --require-signature release.pub
      trb apply HEAD:model_repository --url http://localhost:8000 --to /srv/models
    """
    from triton_repo_builder.ship.deploy import apply
    from triton_repo_builder.ship.deploy.revision import opened
    from triton_repo_builder.ship.stores import signing_keys

    trust = None if place.public_keys is None else signing_keys.read_trust(place.public_keys)
    server.send_key()
    urls, dry_run = server.urls(), options.dry_run
    root = apply.folder(urls.http, place.to)
    tell = (lambda text: None) if place.as_json else (lambda text: console.line(f"  {text}"))
    with (
        console.progress("bytes") as progress,
        opened(revision, weights=True, progress=progress, trust=trust) as source,
    ):
        name, digest = source.name, source.digest
        applied = apply.run(source.path, root, urls, options, tell)
    if place.as_json:
        about = {"revision": name, "digest": digest or None, "server": urls.http, "folder": applied.folder}
        rows = [outcome.to_json() for outcome in applied.outcomes]
        console.echo(
            json.dumps(
                {
                    **about,
                    "drift": applied.drift,
                    "applied": not dry_run and not applied.failed,
                    "loads": applied.loads,
                    "endpoints": rows,
                },
                ensure_ascii=False,
            )
        )
        return int(apply.exit_code(applied, dry_run=dry_run))
    _print(applied, name, urls.http, dry_run=dry_run)
    if applied.failed:
        raise apply.error(applied)
    return int(apply.exit_code(applied, dry_run=dry_run))


def _print(applied: Applied, name: str, url: str, *, dry_run: bool) -> None:
    rows = [
        (outcome.drift.endpoint, str(outcome.drift), "failed" if outcome.error else "")
        for outcome in applied.outcomes
    ]
    console.table(("endpoint", "change", ""), rows)
    changed = [outcome for outcome in applied.outcomes if outcome.drift]
    if not changed:
        console.echo(f"{url} serves {name} already")
    elif dry_run:
        console.echo(f"{counted(len(changed), 'endpoint')} of {url} would change")
    elif not applied.failed:
        console.echo(f"{url} serves {name}: {counted(len(changed), 'endpoint')} changed, proven by trb smoke")
