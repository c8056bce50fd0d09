"""Differences between a repository in the work tree and a git revision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.process import ProcessFailed
from triton_repo_builder.repository import Repository
from triton_repo_builder.ship.vcs import git


def entries(repository: Repository, revision: str) -> set[str]:
    """Names of the entries at the repository's top with a file that was changed, added, removed or moved.

    Includes ensembles that run or ran a changed model; the target of a link counts as a file of its model.
    """
    path = repository.path.resolve()
    top = git.top_level(path)
    if top is None:
        raise TrbError(
            Code.USAGE, "is not in a git repository", where=str(repository.path), remedy="leave --since out"
        )
    run = git.Git(folder=top)
    since = _tree(run, revision)
    # Without renames: the folder that a file has left is named as well.
    changed = run("diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", since, "--")
    added = run("ls-files", "--others", "--exclude-standard", "-z")
    files = {top / name.rstrip("/") for name in (changed + added).split("\0") if name}
    names = set(_names(path, files)) | set(_linked(repository, path, files))
    return names | {ensemble for name in names for ensemble in repository.needing(name)}


def _tree(run: git.Git, revision: str) -> str:
    """Id of the revision's tree; an empty tree before the first commit."""
    try:
        if not revision.startswith("^"):  # for git all but that
            return run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{tree}}").strip()
    except ProcessFailed:
        if revision == "HEAD" and not run.ask("rev-list", "--max-count=1", "--all"):
            return run("hash-object", "-t", "tree", "--stdin", stdin="").strip()
    raise TrbError(
        Code.USAGE,
        f"git knows no revision '{revision}'",
        where=str(run.folder),
        remedy="name a commit, a branch or a tag; in CI fetch it first (fetch-depth: 0)",
    )


def _names(root: Path, files: set[Path]) -> Iterator[str]:
    for file in files:
        if file.is_relative_to(root) and file != root:
            yield file.relative_to(root).parts[0]


def _linked(repository: Repository, root: Path, files: set[Path]) -> Iterator[str]:
    """Models with a link to a changed file, or to a folder that holds one."""
    holding = {above for file in files for above in (file, *file.parents)}
    for model in repository.models:
        for link in _links(repository.path / model.name):
            target = link.resolve()
            if target in holding or not files.isdisjoint((target, *target.parents)):
                yield model.name
                break


def _links(path: Path) -> Iterator[Path]:
    if path.is_symlink():
        yield path
    for folder, folders, names in os.walk(path):
        yield from (place for name in (*folders, *names) if (place := Path(folder, name)).is_symlink())
