"""``trb status``: the servers in the background."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console

if TYPE_CHECKING:
    from triton_repo_builder.run.client import HttpClient
    from triton_repo_builder.run.serve.background.registry import Background

SHOWN = 8
"""Names in a cell of the table; --json has all."""


@click.command("status")
@click.argument("server", required=False, metavar="[NAME|PID]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object per server.")
def command(server: str | None, as_json: bool) -> int:
    """List the running servers that trb serve --detach started, with their loaded models.

    With a name, only that one. A server that ended by itself is named once, with the reason. Without a name
    the exit code is 0 also if there is none.

    \b
    Examples:
      trb status
      trb status model_repository
      trb status --json
    """
    from triton_repo_builder.run.client import HttpClient
    from triton_repo_builder.run.serve.background import registry

    running, ended = registry.sweep()
    for name, words in ended:
        console.echo(f"{name} has ended: {words}", err=True)
    if server is not None:
        running = (registry.select(running, server),)
    ready = {each.pid: HttpClient(each.urls["http"], 2).answers_ready() for each in running}
    loaded = {each.pid: _loaded(each) for each in running}
    if as_json:
        listed = [
            {**registry.about(each), "ready": ready[each.pid], "loaded": loaded[each.pid][0]}
            for each in running
        ]
        console.echo(json.dumps(listed, ensure_ascii=False))
    elif running:
        _show([_row(each, ready[each.pid], loaded[each.pid]) for each in running])
    else:
        console.echo("no servers run in the background")
    return 0


def _row(server: Background, ready: bool, loaded: tuple[list[str], int]) -> dict[str, str]:
    return {
        "name": server.name,
        "pid": str(server.pid),
        "engine": f"docker ({server.container})" if server.container else server.engine,
        "HTTP": server.urls["http"],
        "gRPC": server.urls["grpc"],
        "gateway": server.urls.get("openai", ""),
        "state": ("ready" if ready else "not ready") + _restarted(server),
        "loaded": _short(*loaded),
        "repository": server.repository,
    }


def _show(rows: list[dict[str, str]]) -> None:
    """Print a table, or a few lines for each server if the terminal is too narrow: no address is broken."""
    if not any(row.get("gateway") for row in rows):
        rows = [{name: cell for name, cell in row.items() if name != "gateway"} for row in rows]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    if sum(widths.values()) + console.GAP * len(widths) <= console.output().width:
        console.table(tuple(widths), [tuple(row.values()) for row in rows])
        return
    for row in rows:
        console.echo("{name}: {state}, pid {pid}, {engine}".format(**row))
        gateway = f"  gateway {row['gateway']}" if row.get("gateway") else ""
        console.echo("  HTTP {HTTP}  gRPC {gRPC}".format(**row), gateway)
        console.echo("  loaded {loaded}".format(**row))
        console.echo("  repository {repository}".format(**row))


def _restarted(server: Background) -> str:
    return f" ({counted(server.restarts, 'restart')})" if server.restarts else ""


def _loaded(server: Background) -> tuple[list[str], int]:
    """Names of the ready endpoints, and the number of endpoints in the repository."""
    from triton_repo_builder import repository
    from triton_repo_builder.base.errors import TrbError
    from triton_repo_builder.repository import composition
    from triton_repo_builder.run.client import HttpClient

    try:
        http = HttpClient(server.urls["http"], 10)
        if "://" in server.repository:
            # Its configurations are not readable here: without them the steps of ensembles count, too.
            started_with = [endpoint["name"] for endpoint in server.endpoints]
            ready, all_names = _ready(http, started_with)
            return sorted(ready), len(all_names)
        read = repository.read(Path(server.repository))
        ready, _ = _ready(http, [model.name for model in read.models])
    except (OSError, TrbError):
        return [], 0
    steps = {step for model in read.models if model.name in ready for step in model.steps}
    answer = {name for name in ready if {*composition.members((name,), read.steps_of)} <= {*ready}}
    return sorted(answer - steps), len(read.endpoints)


def _ready(http: HttpClient, names: list[str]) -> tuple[list[str], list[str]]:
    """Names of the models that are ready, and of all models; of ``names`` only if the server hides its list.

    Each model is asked: from release 26.01 on the list still has a model as ready after its process died.
    """
    from triton_repo_builder.base.errors import TrbError

    try:
        states = http.states()
    except TrbError:  # for holders of its admin key only; whether a model is ready is no secret
        return [name for name in names if http.ready(name)], names
    listed = [name for name, (state, _) in states.items() if state == "READY"]
    return [name for name in listed if http.ready(name)], list(states)


def _short(names: list[str], total: int) -> str:
    listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return f"{len(names)} of {total}: {listed}" if names else f"none of {total}"
