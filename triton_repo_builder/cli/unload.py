"""``trb unload``: unload models of a running server."""

from __future__ import annotations

from dataclasses import dataclass

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Real
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import Server


@dataclass(frozen=True, kw_only=True)
class UnloadOptions:
    """Time limit."""

    timeout: float = option(
        60.0, Real(0, above=True), Topic.RUNNING, "Seconds until the models must be unloaded."
    )


@click.command("unload", cls=declared.TopicCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@declared.options(address=Server, options=UnloadOptions)
def command(names: tuple[str, ...], address: Server, options: UnloadOptions) -> int:
    """Unload models of a running server, and wait until they are unloaded.

    Running requests are answered first. The models of an endpoint are unloaded with it, unless another loaded
    endpoint needs them, such as a shared tokenizer.

    \b
    Examples:
      trb unload bert
      trb unload bert resnet --url http://127.0.0.1:8000
    """
    from triton_repo_builder.run.serve.loading import load_unload

    server = load_unload.find(address.reached())
    for name in dict.fromkeys(names):
        was = load_unload.unload(server, name, timeout=options.timeout)
        console.echo(f"unloaded: {name}" if was else f"{name} was not loaded")
    return 0
