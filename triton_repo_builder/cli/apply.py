"""``trb apply``: a running server serves what a revision says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import (
    GRPC_URL_HELP,
    SIGNATURE_HELP,
    Filled,
    Place,
    addresses,
    admin_key_option,
    send_key,
)

if TYPE_CHECKING:
    from triton_repo_builder.ship.deploy.apply import Applied


@click.command("apply")
@click.argument("revision", type=Filled(), metavar="DIR|URL|COMMIT")
@click.option("--url", required=True, help="HTTP address of the running server.")
@click.option("--grpc-url", help=GRPC_URL_HELP)
@admin_key_option
@click.option(
    "--to",
    type=Place(),
    metavar="FOLDER",
    help="The folder that the server reads its models from.  [default: found for a server on this machine]",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change; exit 1 if anything would.")
@click.option(
    "--preflight/--no-preflight",
    default=True,
    help="First test each endpoint that changes on a separate local server.  [default: preflight]",
)
@click.option(
    "--interrupt",
    is_flag=True,
    help="An endpoint whose old and new models cannot be loaded at once may refuse requests meanwhile.",
)
@click.option(
    "--require-signature", "public_keys", type=Place(dir_okay=False), metavar="FILE", help=SIGNATURE_HELP
)
@click.option("--force", is_flag=True, help="Replace files in FOLDER that were edited since trb wrote them.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    revision: str,
    url: str,
    grpc_url: str | None,
    admin_key: Path | None,
    to: Path | None,
    dry_run: bool,
    preflight: bool,
    interrupt: bool,
    public_keys: Path | None,
    force: bool,
    as_json: bool,
) -> int:
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
    from triton_repo_builder.ship.deploy import apply, transition
    from triton_repo_builder.ship.deploy.revision import opened
    from triton_repo_builder.ship.stores import signing_keys

    trust = None if public_keys is None else signing_keys.read_trust(public_keys)
    send_key(url, admin_key)
    urls = addresses(url, grpc_url)
    root = apply.folder(urls.http, to)
    options = transition.Options(preflight=preflight, interrupt=interrupt, force=force, dry_run=dry_run)
    tell = (lambda text: None) if as_json else (lambda text: console.line(f"  {text}"))
    with (
        console.progress("bytes") as progress,
        opened(revision, weights=True, progress=progress, trust=trust) as source,
    ):
        name, digest = source.name, source.digest
        applied = apply.run(source.path, root, urls, options, tell)
    if as_json:
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
