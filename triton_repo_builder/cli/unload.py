"""``trb unload``: unload models of a server that runs."""

from __future__ import annotations

import click

from triton_repo_builder.cli.options import URL_HELP, server_url


@click.command("unload")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--url", help=URL_HELP)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds."
)
def command(names: tuple[str, ...], url: str | None, timeout: float) -> int:
    """Unload models of a server that runs, and wait until they are gone.

    Requests that run are answered first. What an endpoint is made of goes with it, unless something else that
    is loaded needs it, such as a tokenizer that several endpoints share.

    \b
    Examples:
      trb unload bert
      trb unload bert resnet --url http://127.0.0.1:8000
    """
    from triton_repo_builder.serve.loading import load_unload

    server = load_unload.find(server_url(url))
    for name in dict.fromkeys(names):
        was = load_unload.unload(server, name, timeout=timeout)
        click.echo(f"unloaded: {name}" if was else f"{name} was not loaded")
    return 0
