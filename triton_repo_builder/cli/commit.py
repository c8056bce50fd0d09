"""``trb commit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place

if TYPE_CHECKING:
    from triton_repo_builder.ship.vcs.commit import Committed

SHOWN = 12


@click.command("commit")
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@click.option("-m", "--message", required=True, help="Commit message.")
@click.option("--branch", metavar="B", help="Commit to this branch, not the current one; created if missing.")
@click.option("--push", is_flag=True, help="Push the branch, LFS objects first.")
@click.option("--sign", is_flag=True, help="Sign the commit, as git commit -S does.")
@click.option("--force", is_flag=True, help="Commit despite errors of trb check.")
@click.option("--no-verify", is_flag=True, help="Skip git hooks.")
@click.option(
    "--weights",
    type=click.Choice(("lfs", "git", "external")),
    help="Where large files go.  [default: lfs; external ones stay external]",
)
@click.option(
    "--threshold",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Size in bytes from which a file counts as large.",
)
@click.option(
    "--weights-url", default="", metavar="URL", help="For --weights external: file://, https://, s3://."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    repo: Path,
    message: str,
    branch: str | None,
    push: bool,
    sign: bool,
    force: bool,
    no_verify: bool,
    weights: str | None,
    threshold: int,
    weights_url: str,
    as_json: bool,
) -> None:
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
    from dataclasses import asdict

    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.ship.vcs import commit

    if not message.strip():
        raise TrbError(Code.USAGE, "is empty", where="--message", remedy="describe this deployment")
    if weights_url and weights != "external":
        raise click.UsageError("--weights-url needs --weights external.")
    options = commit.CommitOptions(
        message=message,
        branch=branch,
        push=push,
        sign=sign,
        force=force,
        verify=not no_verify,
        weights=weights,
        threshold=threshold,
        url=weights_url,
    )
    console.recovered(repo, whole=True)
    done = commit.commit(repo, options)
    if as_json:
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
