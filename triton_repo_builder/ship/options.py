"""Options of commands that send a repository somewhere, or make a server serve it."""

from __future__ import annotations

from dataclasses import dataclass, field

from triton_repo_builder.base.declaration import Topic, declare, option
from triton_repo_builder.base.option_values import Choice, Number, Off, Switch, Text

LARGE = 1_000_000
"""Bytes from which a file is large: each version of it would stay in git for ever."""


@dataclass(frozen=True, kw_only=True)
class CommitOptions:
    """Options of ``trb commit``."""

    message: str = field(metadata=declare(Text(), Topic.REPOSITORY, "Commit message.", also=("-m",)))
    branch: str | None = option(
        None,
        Text(),
        Topic.REPOSITORY,
        "Commit to this branch, not the current one; created if missing.",
        metavar="B",
    )
    push: bool = option(False, Switch(), Topic.REPOSITORY, "Push the branch, LFS objects first.")
    sign: bool = option(False, Switch(), Topic.REPOSITORY, "Sign the commit, as git commit -S does.")
    force: bool = option(False, Switch(), Topic.REPOSITORY, "Commit despite errors of trb check.")
    verify: bool = option(True, Off(), Topic.REPOSITORY, "Skip git hooks.", flag="--no-verify")
    weights: str | None = option(
        None,
        Choice(("lfs", "git", "external")),
        Topic.WEIGHTS,
        "Where large files go.",
        default="lfs; external ones stay external",
    )
    threshold: int = option(
        LARGE, Number(), Topic.WEIGHTS, "Size in bytes from which a file counts as large."
    )
    url: str = option(
        "",
        Text(),
        Topic.WEIGHTS,
        "For --weights external: file://, https://, s3://.",
        flag="--weights-url",
        metavar="URL",
    )


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """Permissions of an apply, and its preflight."""

    dry_run: bool = option(
        False, Switch(), Topic.OUTPUT, "Only show what would change; exit 1 if anything would."
    )
    preflight: bool = option(
        True,
        Switch("no-preflight"),
        Topic.RUNNING,
        "First test each endpoint that changes on a separate local server.",
        default="preflight",
    )
    interrupt: bool = option(
        False,
        Switch(),
        Topic.RUNNING,
        "An endpoint whose old and new models cannot be loaded at once may refuse requests meanwhile.",
    )
    force: bool = option(
        False, Switch(), Topic.REPOSITORY, "Replace files in FOLDER that were edited since trb wrote them."
    )
