"""``trb rollback``."""

from __future__ import annotations

from pathlib import Path

import click

from triton_repo_builder.cli import declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place
from triton_repo_builder.cli.promote import ChangeOptions, SwitchedServer, run


@click.command("rollback", cls=declared.TopicCommand)
@click.argument("name")
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@declared.options(server=SwitchedServer, change=ChangeOptions)
def command(name: str, repo: Path, server: SwitchedServer, change: ChangeOptions) -> None:
    """Serve the previous version of the endpoint NAME again, as trb promote would.

    \b
    Examples:
      trb rollback sentiment
      trb rollback sentiment --url http://localhost:8000
    """
    # No preflight: that version has served before, and a rollback is urgent.
    run(name, repo, server, change)
