"""``trb promote``, and code shared with ``trb rollback``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.option_values import Number, Switch, Text
from triton_repo_builder.base.text import some
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Address, Place

if TYPE_CHECKING:
    from triton_repo_builder.ship.deploy.promote import Move


@dataclass(frozen=True, kw_only=True)
class SwitchedServer(Address):
    """A running server that also changes its version."""

    url: str | None = option(
        None, Text(), Topic.RUNNING, "Also switch this running server, tested by trb smoke before and after."
    )


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """Replacement of files, and destination of the result."""

    force: bool = option(
        False, Switch(), Topic.REPOSITORY, "Replace files that were edited since trb wrote them."
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@dataclass(frozen=True, kw_only=True)
class PromoteOptions:
    """The version, and its test."""

    preflight: bool = option(
        True,
        Switch("no-preflight"),
        Topic.RUNNING,
        "With --url: first test the version on a separate local server.",
        default="preflight",
        also=("--rehearsal/--no-rehearsal",),
    )
    version: int = field(metadata=declare(Number(), Topic.REPOSITORY, "The version to serve."))


def _rollback_note(move: Move) -> str:
    """Text about the roll-back, which must not promise a version that a rollback would refuse."""
    from triton_repo_builder.ship.deploy import promote

    damage = promote.damage(move.root, promote.promoted(move), move.name, move.old)
    if damage:
        return f"is not as it was built, so 'trb rollback {move.name}' refuses it: {some(damage, 5)}"
    return f"is one 'trb rollback {move.name}' away"


@click.command("promote", cls=declared.TopicCommand)
@click.argument("name")
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@declared.options(server=SwitchedServer, change=ChangeOptions, options=PromoteOptions)
def command(
    name: str, repo: Path, server: SwitchedServer, change: ChangeOptions, options: PromoteOptions
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
    run(name, repo, server, change, options)


def run(
    name: str,
    repo: Path,
    address: SwitchedServer,
    change: ChangeOptions,
    options: PromoteOptions | None = None,
) -> None:
    """Change the served version; without options to the previous one, with no test beforehand."""
    import json

    from triton_repo_builder.repository.journal import staging
    from triton_repo_builder.ship.deploy import promote

    address.send_key()
    url, as_json, version = address.url, change.as_json, options.version if options else None
    settled = False
    console.recovered(repo, whole=True)
    tell = (lambda text: None) if as_json else (lambda text: console.line(f"  {text}", err=False))
    with staging.exclusive(repo) if repo.is_dir() else contextlib.nullcontext():
        move = promote.plan(repo, name, version, force=change.force)
        for file in move.accepted if move else ():
            console.note(f"accepted (--force): {file}")
        if url:
            from triton_repo_builder.ship.deploy import live

            urls = address.urls()
            if move is None:
                settled = live.settle(repo, name, urls, tell)
            else:
                preflight = options is not None and options.preflight
                live.on_server(move, urls, tell, preflight_first=preflight)
        elif move is not None:
            promote.in_repository(move)
    if move is None:
        server = url if settled else None
        served = {"endpoint": name, "version": version, "changed": settled, "server": server}
        restored = f"{url} serves version {version} of {name} again"
        text = restored if settled else f"version {version} of {name} is already served"
        console.echo(json.dumps(served) if as_json else text)
        return
    if as_json:
        done = {"endpoint": name, "version": move.new, "previous": move.old, "changed": True, "server": url}
        console.echo(json.dumps(done))
        return
    servers = f"{url} and {repo} serve" if url else f"{repo} serves"
    console.echo(f"{servers} version {move.new} of {name}; version {move.old} {_rollback_note(move)}")
    if not url:
        console.echo("a running server keeps its version until it is restarted")
