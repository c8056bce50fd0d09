"""``trb promote``, and what ``trb rollback`` shares with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import (
    DEFAULT_REPOSITORY,
    GRPC_URL_HELP,
    Place,
    addresses,
    admin_key_option,
    send_key,
)

if TYPE_CHECKING:
    from triton_repo_builder.ship.deploy.promote import Move


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add REPO and the options of a server."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--force", is_flag=True, help="Replace files that were edited since trb wrote them."),
        admin_key_option,
        click.option("--grpc-url", help=GRPC_URL_HELP),
        click.option("--url", help="Also switch this running server, tested by trb smoke before and after."),
        click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY),
        click.argument("name"),
    ):
        command = option(command)
    return command


def _way_back(move: Move) -> str:
    """Text about the way back: nobody should count on a version that a rollback would refuse."""
    from triton_repo_builder.repository import integrity
    from triton_repo_builder.ship.deploy import promote

    damage = promote.damage(move.root, promote.promoted(move), move.name, move.old)
    if damage:
        return f"is not as it was built, so 'trb rollback {move.name}' refuses it: {integrity.listed(damage)}"
    return f"is one 'trb rollback {move.name}' away"


@click.command("promote")
@server_options
@click.option(
    "--preflight/--no-preflight",
    "--rehearsal/--no-rehearsal",
    "preflight",
    default=True,
    help="With --url: first test the version on a separate local server.  [default: preflight]",
)
@click.option("--version", "version", type=click.IntRange(1), required=True, help="The version to serve.")
def command(
    name: str,
    repo: Path,
    version: int,
    url: str | None,
    grpc_url: str | None,
    admin_key: Path | None,
    force: bool,
    preflight: bool,
    as_json: bool,
) -> None:
    """Serve another version of the endpoint NAME.

    In REPO the version policies and the files beside them become those of that version. With --url the
    server loads it, without losing a request: it first passes trb smoke on a server of its own (if the
    embedded engine is installed), then both versions run until the new one has passed there too; if
    it fails, the old one serves again. The server must run from REPO in explicit mode, as trb serve does.

    \b
    Examples:
      trb promote sentiment --version 2
      trb promote sentiment --version 2 --url http://localhost:8000
    """
    send_key(url, admin_key)
    run(name, repo, version, url, grpc_url, force=force, preflight_first=preflight, as_json=as_json)


def run(
    name: str,
    repo: Path,
    version: int | None,
    url: str | None,
    grpc_url: str | None,
    *,
    force: bool,
    preflight_first: bool,
    as_json: bool,
) -> None:
    """Change the served version; ``version=None``: to the previous one."""
    import json

    from triton_repo_builder.repository.journal import staging
    from triton_repo_builder.ship.deploy import promote

    if grpc_url and not url:
        raise click.UsageError("--grpc-url goes with --url.")
    settled = False
    console.recovered(repo, whole=True)
    tell = (lambda text: None) if as_json else (lambda text: console.line(f"  {text}", err=False))
    with staging.exclusive(repo) if repo.is_dir() else contextlib.nullcontext():
        move = promote.plan(repo, name, version, force=force)
        for file in move.accepted if move else ():
            console.note(f"accepted (--force): {file}")
        if url:
            from triton_repo_builder.ship.deploy import live

            urls = addresses(url, grpc_url)
            if move is None:
                settled = live.settle(repo, name, urls, tell)
            else:
                live.on_server(move, urls, tell, preflight_first=preflight_first)
        elif move is not None:
            promote.in_repository(move)
    if move is None:
        server = url if settled else None
        served = {"endpoint": name, "version": version, "changed": settled, "server": server}
        again = f"{url} serves version {version} of {name} again"
        text = again if settled else f"version {version} of {name} is already served"
        console.echo(json.dumps(served) if as_json else text)
        return
    if as_json:
        done = {"endpoint": name, "version": move.new, "previous": move.old, "changed": True, "server": url}
        console.echo(json.dumps(done))
        return
    servers = f"{url} and {repo} serve" if url else f"{repo} serves"
    console.echo(f"{servers} version {move.new} of {name}; version {move.old} {_way_back(move)}")
    if not url:
        console.echo("a running server keeps its version until it is restarted")
