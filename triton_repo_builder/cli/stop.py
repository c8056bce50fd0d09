"""``trb stop``: stop a server in the background."""

from __future__ import annotations

import click

from triton_repo_builder.cli import console


@click.command("stop")
@click.argument("server", required=False, metavar="[NAME|PID]")
@click.option("--all", "everything", is_flag=True, help="Stop every server in the background.")
def command(server: str | None, everything: bool) -> int:
    """Stop a server that trb serve --detach started, and wait until it has ended.

    Without a name: the only running one. A name is that of trb status, or the repository's path. --all also
    removes containers left behind by a trb that was killed.

    \b
    Examples:
      trb stop
      trb stop model_repository
      trb stop --all
    """
    from triton_repo_builder.run.serve.background import registry

    if server is not None and everything:
        raise click.UsageError("give a server or --all, not both")
    running, _ = registry.sweep()
    left = _strays() if everything else []
    for name in left:
        console.echo(f"removed {name} from Docker: its trb is gone")
    if left and not running:
        return 0
    if not (everything and running):
        running = (registry.select(running, server, alternative=", or stop all with --all"),)
    for entry in running:
        registry.stop(entry)
        console.echo(f"stopped {entry.name} ({entry.pid})")
    return 0


def _strays() -> list[str]:
    """Remove what a killed trb left in Docker; warns if Docker does not answer."""
    from triton_repo_builder.base.errors import TrbError
    from triton_repo_builder.run.serve.docker import cleanup, daemon

    if not daemon.configured():
        return []
    try:
        with daemon.explained_errors():
            return cleanup.remove_strays(daemon.connect())
    except TrbError as error:
        console.echo(f"warning: containers were not looked for: {error.message}", err=True)
        return []
