"""``trb remove``: remove endpoints from a repository."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from triton_repo_builder.cli import build_report, console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place


@click.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--output",
    "-o",
    type=Place(),
    default=DEFAULT_REPOSITORY,
    show_default=True,
    help="Repository.",
)
@click.option("--force", is_flag=True, help="Also remove files that were edited since trb wrote them.")
@click.option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
def command(names: tuple[str, ...], output: Path, force: bool, dry_run: bool) -> int:
    """Remove endpoints that trb built, with their models, from a repository; all or nothing.

    A tokenizer that other endpoints share stays. So do your own files in those directories. A running server
    is not notified: use trb unload first.

    \b
    Examples:
      trb remove bert
      trb remove bert resnet --output my_repository --dry-run
    """
    from triton_repo_builder.produce.write import publish, remove
    from triton_repo_builder.repository.journal import turn

    with nullcontext() if dry_run else turn.taken(output, console.line):
        console.recovered(output, write=not dry_run, whole=True)
        publication = remove.remove(output, tuple(dict.fromkeys(names)), force=force or dry_run)
        if dry_run:
            build_report.print_dry_run(publication.changes)
            return 0
        publish.publish(publication)
    console.echo(f"{output}: {build_report.changed(publication.changes)}")
    return 0
