"""Which branch a commit goes to, and which remote takes it."""

from __future__ import annotations

from dataclasses import dataclass

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
    """The value that the ref must still have; empty where it must not exist."""

    @property
    def ref(self) -> str:
        """What is moved."""
        return "HEAD" if self.current else f"refs/heads/{self.branch}"


def target(here: Git, asked: str | None) -> Target:
    """The branch that is asked for, None: the current one. Raises ``TrbError`` GIT_REFUSED, USAGE."""
    # Not --short: beside a tag of the same name that would say heads/NAME.
    head = here.ask("symbolic-ref", "--quiet", "HEAD").removeprefix("refs/heads/")
    tip = here.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    branch = None if asked is None else _branch(here, asked)
    if branch is None or branch == head:
        for name, what in UNDER_WAY.items():
            if here.path(name).exists():
                raise TrbError(
                    Code.GIT_REFUSED,
                    f"{what} is under way there",
                    where=str(here.folder),
                    remedy="finish or abort it first ('git status' says how), or commit to another --branch",
                )
        return Target(branch=head, parent=tip, current=True, old=tip)
    old = here.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    if f"branch refs/heads/{branch}\n" in here("worktree", "list", "--porcelain"):
        raise TrbError(
            Code.GIT_REFUSED,
            f"the branch '{branch}' is checked out in another work tree",
            where=str(here.folder),
            remedy="run trb commit there ('git worktree list' says where), or choose another --branch",
        )
    if not old:
        _check_free(here, branch)
    return Target(branch=branch, parent=old or tip, current=False, old=old)


def _branch(here: Git, said: str) -> str:
    """The short name of a branch that is asked for; in CI it often comes as ``refs/heads/NAME``."""
    short = said.removeprefix("refs/heads/")
    name = "" if short.startswith("refs/") else here.ask("check-ref-format", "--branch", short)
    if not name:
        raise TrbError(
            Code.USAGE,
            f"'{said}' cannot be the name of a branch",
            where="--branch",
            remedy="use letters, digits, '-', '_' and '/', e.g. --branch deploy/sentiment",
        )
    return name


def _check_free(here: Git, branch: str) -> None:
    """git keeps branches as files in folders: with ``a`` there is no ``a/b``, and with ``a/b`` no ``a``."""
    parts = branch.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    named = [f"refs/heads/{name}" for name in (*above, f"{branch}/")]
    taken = here("for-each-ref", "--format=%(refname:lstrip=2)", *named).splitlines()
    taken = [name for name in taken if name in above or name.startswith(f"{branch}/")]
    if taken:
        raise TrbError(
            Code.GIT_REFUSED,
            f"there is a branch '{taken[0]}', so git can have none that is called '{branch}'",
            where="--branch",
            remedy=f"choose another name, e.g. --branch {branch.replace('/', '-')}"
            if taken[0] in above
            else f"choose another name, e.g. --branch {branch}/{parts[-1]}, or remove '{taken[0]}'",
        )


def remote(here: Git, branch: str) -> str:
    """The remote to push it to. Raises ``TrbError`` GIT_REFUSED."""
    if not branch:
        raise TrbError(
            Code.GIT_REFUSED,
            "HEAD is detached: there is no branch to push",
            where=str(here.folder),
            remedy="name one with --branch",
        )
    known = here.ask("remote").split()
    configured = here.ask("config", f"branch.{branch}.remote")
    name = configured or ("origin" if "origin" in known else known[0] if len(known) == 1 else "")
    if name not in known:
        raise TrbError(
            Code.GIT_REFUSED,
            "there is no remote to push to",
            where=str(here.folder),
            remedy="add one: git remote add origin URL",
        )
    return name


def check_lock(here: Git) -> None:
    """``TrbError`` GIT_REFUSED while another git process holds the index, which a commit has to change."""
    lock = here.path("index.lock")
    if lock.exists():
        raise TrbError(
            Code.GIT_REFUSED,
            "another git process is at work there, nothing was committed",
            where=str(lock),
            remedy="wait until it ends; if none runs, it crashed: remove this file, then commit again",
        )
