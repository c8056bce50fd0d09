"""``trb commit``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Switch
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place
from triton_repo_builder.ship.options import CommitOptions

if TYPE_CHECKING:
    from triton_repo_builder.ship.vcs.commit import Committed

SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Destination of the result."""

    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")


@click.command("commit", cls=declared.TopicCommand)
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@declared.options(options=CommitOptions, output=OutputOptions)
def command(repo: Path, options: CommitOptions, output: OutputOptions) -> None:
    """Commit a model repository to git: its own files, all of them, and nothing else.

    What you have staged or edited elsewhere stays as it is. Trailers of the message say what is deployed and
    where it comes from. Refuses what trb check finds wrong. Without changes there is no commit.

    \b
    Examples:
      trb commit -m "Sentiment, trained on October's data"
      trb commit model_repository -m "Roll out" --branch deploy --push
      trb commit -m "Large weights" --weights external --weights-url s3://models/weights
    """
    import json

    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.ship.vcs import commit

    if not options.message.strip():
        raise TrbError(Code.USAGE, "is empty", where="--message", remedy="describe this deployment")
    if options.url and options.weights != "external":
        raise click.UsageError("--weights-url needs --weights external.")
    console.recovered(repo, whole=True)
    done = commit.commit(repo, options)
    if output.as_json:
        console.echo(json.dumps(asdict(done) | {"created": bool(done.changed)}, indent=1, ensure_ascii=False))
    else:
        _print(done, repo)


def _print(done: Committed, repo: Path) -> None:
    for note in done.notes:
        console.note(note)
    where = done.branch or "(detached HEAD)"
    if done.changed:
        console.echo(f"[{where} {done.commit[:12]}] {counted(len(done.changed), 'file')} of {repo}")
        shown = [path for path in done.changed if "/vendor/" not in path]
        for path in shown[:SHOWN]:
            console.echo(f"  {path}")
        if len(shown) > SHOWN:
            console.echo(f"  and {len(shown) - SHOWN} more")
        if done.large:
            console.echo(f"not in git itself: {', '.join(done.large)}")
    else:
        created = f"; created the branch {done.branch} there" if done.new_branch else ""
        console.echo(f"nothing to commit: {repo} is as in {done.commit[:12]}{created}")
    if done.sent:
        console.echo(f"pushed {done.branch} to {done.pushed}")
    elif done.pushed:
        console.echo(f"nothing to push: {done.pushed} has {done.branch} already")
