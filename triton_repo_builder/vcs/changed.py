"""Models of a repository that differ from a git revision, in the work tree as it is."""

from __future__ import annotations

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.process import ProcessFailed
from triton_repo_builder.repository import Repository
from triton_repo_builder.vcs import git


def models(repository: Repository, revision: str) -> set[str]:
    """Names of the models with a file that was changed, added or removed, and of the ensembles on them."""
    path = repository.path.resolve()
    top = git.top_level(path)
    if top is None:
        raise TrbError(
            Code.USAGE, "is not in a git repository", where=str(repository.path), remedy="leave --since out"
        )
    run = git.Git(folder=path)
    try:
        changed = run("diff", "--name-only", "--relative", "-z", revision, "--", ".")
        added = run("ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    except ProcessFailed:
        raise TrbError(
            Code.USAGE,
            f"git knows no revision '{revision}'",
            where=str(top),
            remedy="name a commit, a branch or a tag; in CI fetch it first (fetch-depth: 0)",
        ) from None
    names = {name.partition("/")[0] for name in (changed + added).split("\0") if "/" in name}
    known = {model.name for model in repository.models}
    return {
        affected
        for name in names & known
        for affected in (name, *repository.needing(name))
        if repository.model(affected) is not None
    }
