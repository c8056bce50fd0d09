"""``trb stop``: end a server in the background."""

from __future__ import annotations

import click


@click.command("stop")
@click.argument("server", required=False, metavar="[NAME|PID]")
@click.option("--all", "everything", is_flag=True, help="Stop every server that runs in the background.")
def command(server: str | None, everything: bool) -> int:
    """Stop a server that trb serve --detach started, and wait until it is gone.

    Without a name, the only one that runs. A name is the repository's folder name or path.

    \b
    Examples:
      trb stop
      trb stop model_repository
      trb stop --all
    """
    from triton_repo_builder.serving import state

    if server is not None and everything:
        raise click.UsageError("give a server or --all, not both")
    running, _ = state.sweep()
    for entry in running if everything and running else [state.select(running, server)]:
        state.stop(entry)
        click.echo(f"stopped {entry.name} ({entry.pid})")
    return 0
