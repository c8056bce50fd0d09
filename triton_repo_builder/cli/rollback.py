"""``trb rollback``."""

from __future__ import annotations

from pathlib import Path

import click

from triton_repo_builder.cli.options import send_key
from triton_repo_builder.cli.promote import run, server_options


@click.command("rollback")
@server_options
def command(
    name: str,
    repo: Path,
    url: str | None,
    grpc_url: str | None,
    admin_key: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Serve the previous version of the endpoint NAME again, as trb promote would.

    \b
    Examples:
      trb rollback sentiment
      trb rollback sentiment --url http://localhost:8000
    """
    send_key(url, admin_key)
    # No preflight: that version has served before, and a rollback is urgent.
    run(name, repo, None, url, grpc_url, force=force, preflight_first=False, as_json=as_json)
