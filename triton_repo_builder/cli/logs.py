"""``trb logs``: the output of a server in the background."""

from __future__ import annotations

from pathlib import Path

import click

from triton_repo_builder.cli import console


@click.command("logs")
@click.argument("server", required=False, metavar="[NAME|PID]")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the server ends or Ctrl-C.")
@click.option("--tail", "lines", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
def command(server: str | None, follow: bool, lines: int | None) -> int:
    """Print the output of a server that trb serve --detach started, embedded or in Docker.

    Without a name: the only running one. A name is that of trb status, or the repository's path.

    \b
    Examples:
      trb logs
      trb logs model_repository --tail 20
      trb logs -f
    """
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.run.serve.background import log_follow, registry

    running, _ = registry.sweep()
    entry = registry.select(running, server)
    file = Path(entry.log)
    if not file.is_file():
        raise TrbError(
            Code.NOT_FOUND, "the server's log is gone", where=str(file), remedy="start the server again"
        )
    start = 0 if lines is None else log_follow.last_lines(file, lines)

    def ended() -> bool:
        return not follow or not registry.runs(entry)

    def log() -> Path:
        return Path(registry.latest(entry).log) if follow else file

    log_follow.follow(log, lambda text: console.echo(text, nl=False), ended, start=start)
    return 0
