"""``trb status``: the servers in the background."""

from __future__ import annotations

import json

import click


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per server, in a list.")
def command(as_json: bool) -> int:
    """List the servers that trb serve --detach started and that still run.

    One that ended by itself is named once, with its reason. The exit code is 0 also when there is none.

    \b
    Examples:
      trb status
      trb status --json
    """
    from triton_repo_builder.serving import http, state

    running, ended = state.sweep()
    for name, words in ended:
        click.echo(f"{name} has ended: {words}", err=True)
    ready = {server.pid: http.ready(server.urls["http"]) for server in running}
    if as_json:
        listed = [{**state.about(server), "ready": ready[server.pid]} for server in running]
        click.echo(json.dumps(listed, ensure_ascii=False))
        return 0
    if not running:
        click.echo("no servers run in the background")
        return 0
    from rich.markup import escape
    from rich.table import Table

    from triton_repo_builder.cli import ui

    table = Table("name", "pid", "engine", "HTTP", "gRPC", "state", "endpoints", "repository")
    for server in running:
        cells = [
            server.name,
            str(server.pid),
            f"docker ({server.container})" if server.container else server.engine,
            server.urls["http"],
            server.urls["grpc"],
            "ready" if ready[server.pid] else "not ready",
            ", ".join(endpoint["name"] for endpoint in server.endpoints),
            server.repository,
        ]
        table.add_row(*(escape(cell) for cell in cells))
    ui.console().print(table)
    return 0
