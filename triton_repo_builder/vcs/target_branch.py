"""The branch that a commit goes to, an index of its own to make it in, and the remote that takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.vcs.git import Git

UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the commit goes."""

    branch: str
    """Empty: HEAD is detached."""
    parent: str
    """Empty: the first commit."""
    current: bool
    """Whether the work tree is at this branch."""
    old: str
    """Its commit now; empty: the branch does not exist."""


def target(here: Git, name: str | None) -> Target:
    """The branch of this name, None: the current one. Raises ``TrbError`` GIT_REFUSED, USAGE."""
    # Not --short: beside a tag of the same name that would say heads/NAME.
    head = here.ask("symbolic-ref", "--quiet", "HEAD").removeprefix("refs/heads/")
    tip = here.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    branch = None if name is None else _branch(here, name)
    if branch is None or branch == head:
        for file, what in UNDER_WAY.items():
            if here.path(file).exists():
                raise TrbError(
                    Code.GIT_REFUSED,
                    f"{what} is in progress",
                    where=str(here.folder),
                    remedy="finish or abort it first (see 'git status'), or commit to another --branch",
                )
        return Target(branch=head, parent=tip, current=True, old=tip)
    old = here.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    if f"branch refs/heads/{branch}\n" in here("worktree", "list", "--porcelain"):
        raise TrbError(
            Code.GIT_REFUSED,
            f"the branch '{branch}' is checked out in another work tree",
            where=str(here.folder),
            remedy="run trb commit there (see 'git worktree list'), or choose another --branch",
        )
    if not old:
        _check_free(here, branch)
    return Target(branch=branch, parent=old or tip, current=False, old=old)


@contextmanager
def private(here: Git, target: Target, scratch: Path) -> Iterator[Git]:
    """git with an index of its own, so that a refused commit leaves the user's index as it was.

    For another branch than the current one also with a HEAD of its own: that of a linked work tree without
    files, detached, so that a killed process leaves no branch checked out there.
    """
    if target.current:
        yield Git(folder=here.folder, variables={"GIT_INDEX_FILE": str(scratch / "index")})
        return
    tree = scratch / "tree"
    start = target.parent or _empty_commit(here)
    here("worktree", "add", "--quiet", "--no-checkout", "--detach", str(tree), start)
    try:
        own = Git(folder=tree)("rev-parse", "--absolute-git-dir").rstrip("\n")
        git = Git(folder=here.folder, variables={"GIT_DIR": own, "GIT_WORK_TREE": str(here.folder)})
        if not target.parent:  # the first commit of all has no parent
            git("symbolic-ref", "HEAD", "refs/worktree/first")
        yield git
    finally:
        here("worktree", "remove", "--force", str(tree))


def _empty_commit(here: Git) -> str:
    """What a linked work tree can start from in a git repository without a commit."""
    return here(
        "commit-tree", "-m", "empty", here("hash-object", "-t", "tree", "--stdin", stdin="").strip()
    ).strip()


def _branch(here: Git, text: str) -> str:
    """The short name of a branch; in CI it often comes as ``refs/heads/NAME``."""
    short = text.removeprefix("refs/heads/")
    name = "" if short.startswith("refs/") else here.ask("check-ref-format", "--branch", short)
    if not name:
        raise TrbError(
            Code.USAGE,
            f"invalid branch name '{text}'",
            where="--branch",
            remedy="use letters, digits, '-', '_' and '/', e.g. --branch deploy/sentiment",
        )
    return name


def _check_free(here: Git, branch: str) -> None:
    """git keeps branches as files in folders: ``a`` and ``a/b`` exclude each other."""
    parts = branch.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    named = [f"refs/heads/{name}" for name in (*above, f"{branch}/")]
    taken = here("for-each-ref", "--format=%(refname:lstrip=2)", *named).splitlines()
    taken = [name for name in taken if name in above or name.startswith(f"{branch}/")]
    if taken:
        raise TrbError(
            Code.GIT_REFUSED,
            f"there is a branch '{taken[0]}', so git cannot have a branch '{branch}'",
            where="--branch",
            remedy=f"choose another name, e.g. --branch {branch.replace('/', '-')}"
            if taken[0] in above
            else f"choose another name, e.g. --branch {branch}/{parts[-1]}, or remove '{taken[0]}'",
        )


def remote(here: Git, branch: str) -> str:
    """The remote to push the branch to. Raises ``TrbError`` GIT_REFUSED."""
    if not branch:
        raise TrbError(
            Code.GIT_REFUSED,
            "HEAD is detached: there is no branch to push",
            where=str(here.folder),
            remedy="name one with --branch",
        )
    remotes = here.ask("remote").split()
    configured = here.ask("config", f"branch.{branch}.remote")
    name = configured or ("origin" if "origin" in remotes else remotes[0] if len(remotes) == 1 else "")
    if name not in remotes:
        raise TrbError(
            Code.GIT_REFUSED,
            "there is no remote to push to",
            where=str(here.folder),
            remedy="add one: git remote add origin URL",
        )
    return name


def check_lock(here: Git) -> None:
    """Raise GIT_REFUSED while another git process holds the index, which a commit has to change."""
    lock = here.path("index.lock")
    if lock.exists():
        raise TrbError(
            Code.GIT_REFUSED,
            "another git process is running there, nothing was committed",
            where=str(lock),
            remedy="wait until it ends; if none runs, it crashed: remove this file, then commit again",
        )
