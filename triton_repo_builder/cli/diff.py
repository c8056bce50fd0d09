"""``trb diff``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Choice, FilePath, Switch
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, FILLED

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
    "answers": "the same requests may get other answers",
    "compatible": "clients need not change",
    "operation": "speed and resources",
    "origin": "where it comes from",
}


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """The repository, and the format of the differences."""

    repo: Path = option(DEFAULT_REPOSITORY, FilePath(), Topic.REPOSITORY, "Repository of NAME@VERSION.")
    fail_on: str | None = option(
        None, Choice(("breaking", "answers")), Topic.OUTPUT, "Exit 1 on such a change, or a worse one."
    )
    markdown: bool = option(False, Switch(), Topic.OUTPUT, "Print a Markdown table, e.g. for a pull request.")
    as_json: bool = option(
        False, Switch(), Topic.OUTPUT, "Print the differences as a JSON list.", flag="--json"
    )


@click.command("diff", cls=declared.TopicCommand)
@click.argument("a", type=FILLED)
@click.argument("b", type=FILLED)
@declared.options(options=DiffOptions)
def command(a: str, b: str, options: DiffOptions) -> int:
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

    for place in dict.fromkeys((options.repo, Path(a), Path(b))):
        console.recovered(place, write=False)
    with snapshot.read(a, options.repo) as old, snapshot.read(b, options.repo) as new:
        differences = diff.compare(old, new)
    if options.as_json:
        console.echo(
            json.dumps([difference.to_json() for difference in differences], indent=1, ensure_ascii=False)
        )
    elif options.markdown:
        _markdown(differences)
    else:
        _print(differences)
    worst = {None: (), "breaking": ("breaking",), "answers": ("breaking", "answers")}[options.fail_on]
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
