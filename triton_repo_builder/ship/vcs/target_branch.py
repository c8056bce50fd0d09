"""The branch of a commit, its separate index, and the remote to push to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.vcs import scratch
from triton_repo_builder.ship.vcs.git import Git

UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """The branch that a commit goes to."""

    branch: str
    """Empty: HEAD is detached."""
    parent: str
    """Empty: the first commit."""
    current: bool
    """Whether the work tree is at this branch."""
    old: str
    """The branch's current commit; empty: the branch does not exist."""


def target(git: Git, name: str | None) -> Target:
    """The branch of this name, None: the current one. Raises ``TrbError`` GIT_REFUSED, USAGE."""
    # Not --short: beside a tag of the same name that would say heads/NAME.
    head = git.ask("symbolic-ref", "--quiet", "HEAD").removeprefix("refs/heads/")
    tip = git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    branch = None if name is None else _branch(git, name)
    if branch is None or branch == head:
        for file, operation in zip(git.paths(*UNDER_WAY), UNDER_WAY.values(), strict=True):
            if file.exists():
                raise TrbError(
                    Code.GIT_REFUSED,
                    f"{operation} is in progress",
                    where=str(git.folder),
                    remedy="finish or abort it first (see 'git status'), or commit to another --branch",
                )
        return Target(branch=head, parent=tip, current=True, old=tip)
    old = git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    if f"branch refs/heads/{branch}\n" in git("worktree", "list", "--porcelain"):
        raise TrbError(
            Code.GIT_REFUSED,
            f"the branch '{branch}' is checked out in another work tree",
            where=str(git.folder),
            remedy="run trb commit there (see 'git worktree list'), or choose another --branch",
        )
    if not old:
        _check_free(git, branch)
    return Target(branch=branch, parent=old or tip, current=False, old=old)


@contextmanager
def private(git: Git, target: Target, folder: Path) -> Iterator[Git]:
    """git with an index of its own, so that a refused commit leaves the user's index as it was.

    For a branch other than the current one, also with its own HEAD: a linked work tree without files,
    detached, so that a killed process leaves no branch checked out there.
    """
    if target.current:
        yield Git(folder=git.folder, variables={"GIT_INDEX_FILE": str(folder / "index")})
        return
    tree = scratch.linked_tree(folder)
    start = target.parent or _empty_commit(git)
    git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(tree), start)
    try:
        git_dir = Git(folder=tree)("rev-parse", "--absolute-git-dir").rstrip("\n")
        linked = Git(folder=git.folder, variables={"GIT_DIR": git_dir, "GIT_WORK_TREE": str(git.folder)})
        if not target.parent:  # the first commit of all has no parent
            linked("symbolic-ref", "HEAD", "refs/worktree/first")
        yield linked
    finally:
        git("worktree", "remove", "--force", str(tree))


def _empty_commit(git: Git) -> str:
    """A commit from which a linked work tree can start in a git repository without one."""
    return git(
        "commit-tree", "-m", "empty", git("hash-object", "-t", "tree", "--stdin", stdin="").strip()
    ).strip()


def _branch(git: Git, text: str) -> str:
    """The short name of a branch; in CI it often comes as ``refs/heads/NAME``."""
    short = text.removeprefix("refs/heads/")
    name = "" if short.startswith("refs/") else git.ask("check-ref-format", "--branch", short)
    if not name:
        raise TrbError(
            Code.USAGE,
            f"invalid branch name '{text}'",
            where="--branch",
            remedy="use letters, digits, '-', '_' and '/', e.g. --branch deploy/sentiment",
        )
    return name


def _check_free(git: Git, branch: str) -> None:
    """Raise GIT_REFUSED if a branch excludes this one, as ``a`` does ``a/b``: git keeps them as files."""
    parts = branch.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    named = [f"refs/heads/{name}" for name in (*above, f"{branch}/")]
    branches = git("for-each-ref", "--format=%(refname:lstrip=2)", *named).splitlines()
    branches = [name for name in branches if name in above or name.startswith(f"{branch}/")]
    if branches:
        raise TrbError(
            Code.GIT_REFUSED,
            f"there is a branch '{branches[0]}', so git cannot have a branch '{branch}'",
            where="--branch",
            remedy=f"choose another name, e.g. --branch {branch.replace('/', '-')}"
            if branches[0] in above
            else f"choose another name, e.g. --branch {branch}/{parts[-1]}, or remove '{branches[0]}'",
        )


def remote(git: Git, branch: str) -> str:
    """The remote to push the branch to. Raises ``TrbError`` GIT_REFUSED."""
    if not branch:
        raise TrbError(
            Code.GIT_REFUSED,
            "HEAD is detached: there is no branch to push",
            where=str(git.folder),
            remedy="name one with --branch",
        )
    remotes = git.ask("remote").split()
    configured = git.ask("config", f"branch.{branch}.remote")
    name = configured or ("origin" if "origin" in remotes else remotes[0] if len(remotes) == 1 else "")
    if name not in remotes:
        raise TrbError(
            Code.GIT_REFUSED,
            "there is no remote to push to",
            where=str(git.folder),
            remedy="add one: git remote add origin URL",
        )
    return name


def check_lock(git: Git, branch: str) -> None:
    """Raise GIT_REFUSED while another git process locks the index, HEAD or the branch."""
    for lock in git.paths("index.lock", "HEAD.lock", *([f"refs/heads/{branch}.lock"] if branch else [])):
        if lock.exists():
            raise TrbError(
                Code.GIT_REFUSED,
                "another git process is running there, nothing was committed",
                where=str(lock),
                remedy="wait until it ends; if none runs, it crashed: remove this file, then commit again",
            )
