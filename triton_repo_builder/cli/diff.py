"""``trb diff``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Filled, Place

if TYPE_CHECKING:
    from triton_repo_builder.ship.deploy.diff import Difference

COLOURS = {
    "breaking": "red",
    "answers": "yellow",
    "compatible": "green",
    "operation": "cyan",
    "origin": "white",
}
MEANINGS = {
    "breaking": "clients must change",
    "answers": "the same requests get other answers",
    "compatible": "clients need not change",
    "operation": "speed and resources",
    "origin": "where it comes from",
}


@click.command("diff")
@click.argument("a", type=Filled())
@click.argument("b", type=Filled())
@click.option(
    "--repo",
    type=Place(),
    default=DEFAULT_REPOSITORY,
    show_default=True,
    help="Repository of NAME@VERSION.",
)
@click.option(
    "--fail-on", type=click.Choice(("breaking", "answers")), help="Exit 1 on such a change, or a worse one."
)
@click.option("--markdown", is_flag=True, help="Print a Markdown table, e.g. for a pull request.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as a JSON list.")
def command(a: str, b: str, repo: Path, fail_on: str | None, markdown: bool, as_json: bool) -> int:
    """Show what changes for a client from A to B.

    A and B are each a repository's folder, a version of an endpoint (NAME@VERSION), or a git revision and a
    path in it (REVISION:PATH). Weights are not read; recorded answers show how far answers move.

    \b
    Examples:
      trb diff sentiment@1 sentiment@2
      trb diff HEAD~1:model_repository model_repository
      trb diff main:model_repository model_repository --markdown --fail-on breaking
    """
    import json

    from triton_repo_builder.ship.deploy import diff, snapshot

    for place in dict.fromkeys((repo, Path(a), Path(b))):
        console.recovered(place, write=False)
    with snapshot.read(a, repo) as old, snapshot.read(b, repo) as new:
        differences = diff.compare(old, new)
    if as_json:
        console.echo(
            json.dumps([difference.to_json() for difference in differences], indent=1, ensure_ascii=False)
        )
    elif markdown:
        _markdown(differences)
    else:
        _print(differences)
    worst = {None: (), "breaking": ("breaking",), "answers": ("breaking", "answers")}[fail_on]
    return int(any(difference.effect in worst for difference in differences))


def _print(differences: list[Difference]) -> None:
    last = ("", "")
    for difference in differences:
        if difference.endpoint != last[0]:
            console.echo(console.style(difference.endpoint, bold=True))
        if (difference.endpoint, difference.effect) != last:
            colour = COLOURS[difference.effect]
            console.echo(
                "  ", console.style(difference.effect, fg=colour), f": {MEANINGS[difference.effect]}"
            )
        last = (difference.endpoint, difference.effect)
        console.echo(f"    {difference.about:<11} {difference.text}")
    if not differences:
        console.echo("no difference for a client")


def _markdown(differences: list[Difference]) -> None:
    if not differences:
        console.echo("No difference for a client.")
        return
    console.echo("| endpoint | effect | what | change |\n|---|---|---|---|")
    for difference in differences:
        cells = (difference.endpoint, difference.effect, difference.about, difference.text)
        console.echo(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
