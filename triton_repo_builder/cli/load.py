"""``trb load``: load models on a running server."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Real, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import Server


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Time limit and output."""

    timeout: float = option(
        300.0, Real(0, above=True), Topic.RUNNING, "Seconds until the models must be ready."
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the endpoints as JSON.", flag="--json")


@click.command("load", cls=declared.TopicCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@declared.options(address=Server, options=LoadOptions)
def command(names: tuple[str, ...], address: Server, options: LoadOptions) -> int:
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

    server = load_unload.find(address.reached())
    chosen = tuple(dict.fromkeys(names))
    with console.status() as progress:
        progress(f"loading {', '.join(chosen)}")
        load_unload.load(server, chosen, timeout=options.timeout)
    usages = [snippets.usage(server.base, name, server.folder(name)).to_json() for name in chosen]
    if options.as_json:
        console.echo(json.dumps(usages, ensure_ascii=False))
    else:
        serve.show_endpoints(usages)
        console.echo(f"loaded: {', '.join(chosen)}")
    return 0
