"""``trb unload``: unload models of a running server."""

from __future__ import annotations

from pathlib import Path

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import URL_HELP, Real, admin_key_option, send_key, server_url


@click.command("unload")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--url", help=URL_HELP)
@admin_key_option
@click.option(
    "--timeout",
    type=Real(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds until the models must be unloaded.",
)
def command(names: tuple[str, ...], url: str | None, admin_key: Path | None, timeout: float) -> int:
    """Unload models of a running server, and wait until they are unloaded.

    Running requests are answered first. The models of an endpoint are unloaded with it, unless another loaded
    endpoint needs them, such as a shared tokenizer.

    \b
    Examples:
      trb unload bert
      trb unload bert resnet --url http://127.0.0.1:8000
    """
    from triton_repo_builder.run.serve.loading import load_unload

    base = server_url(url)
    send_key(base, admin_key)
    server = load_unload.find(base)
    for name in dict.fromkeys(names):
        was = load_unload.unload(server, name, timeout=timeout)
        console.echo(f"unloaded: {name}" if was else f"{name} was not loaded")
    return 0
