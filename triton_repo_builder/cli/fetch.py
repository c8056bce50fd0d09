"""``trb fetch``."""

from __future__ import annotations

from pathlib import Path

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place


@click.command("fetch")
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
def command(repo: Path) -> None:
    """Download the files that a commit with --weights external left out, and verify their sha256.

    Files that exist and match are left alone. Needed once after git clone, before trb serve.

    \b
    Examples:
      trb fetch
      trb fetch services/sentiment/model_repository
    """
    from triton_repo_builder import repository
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.ship.stores import external_weights

    console.recovered(repo)
    manifest = repository.read(repo).manifest
    if manifest is None:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            "has no manifest.json of trb, which lists the external files",
            where=str(repo),
            remedy="name a repository that trb built and committed with --weights external",
        )
    with console.status() as tell:
        fetched, present = external_weights.fetch(repo, manifest, tell)
    for name in fetched:
        console.echo(f"fetched {name}")
    if pointers := external_weights.pointers(repo, manifest):
        shown = ", ".join(pointers[:3]) + (f" and {len(pointers) - 3} more" if len(pointers) > 3 else "")
        raise TrbError(
            Code.LFS_POINTER,
            f"pointers of git LFS instead of the files: {shown}",
            where=str(repo),
            remedy="get them with: git lfs install && git lfs pull",
        )
    if not fetched:
        reason = f"{present} already there" if present else "all its files are in git"
        console.echo(f"nothing to fetch: {reason}")
