"""``trb load``: load models on a running server."""

from __future__ import annotations

import json
from pathlib import Path

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import URL_HELP, Real, admin_key_option, send_key, server_url


@click.command("load")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--url", help=URL_HELP)
@admin_key_option
@click.option(
    "--timeout",
    type=Real(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds until the models must be ready.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the endpoints as JSON.")
def command(
    names: tuple[str, ...], url: str | None, admin_key: Path | None, timeout: float, as_json: bool
) -> int:
    """Load models, and what they need, on a running server, and wait until they answer.

    The server must run in explicit mode, as trb serve starts it. A model that was built after the server
    started can be loaded; a loaded one is loaded again if its files changed. A failure is named with its
    real reason, and leaves the server and its other models as they were.

    \b
    Examples:
      trb load bert
      trb load bert resnet --url http://127.0.0.1:8000
    """
    from triton_repo_builder.cli import serve
    from triton_repo_builder.run.codegen import snippets
    from triton_repo_builder.run.serve.loading import load_unload

    base = server_url(url)
    send_key(base, admin_key)
    server = load_unload.find(base)
    chosen = tuple(dict.fromkeys(names))
    with console.status() as progress:
        progress(f"loading {', '.join(chosen)}")
        load_unload.load(server, chosen, timeout=timeout)
    usages = [snippets.usage(server.base, name, server.folder(name)).to_json() for name in chosen]
    if as_json:
        console.echo(json.dumps(usages, ensure_ascii=False))
    else:
        serve.show_endpoints(usages)
        console.echo(f"loaded: {', '.join(chosen)}")
    return 0
