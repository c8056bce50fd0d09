"""git, as far as committing a repository needs it: plumbing that leaves the user's index and files alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder import process
from triton_repo_builder.errors import Code, TrbError

_OURS = ("GIT_INDEX_FILE", "GIT_PREFIX", "GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY")
"""Set where ``trb`` runs inside a hook of another commit: they would lead into that commit."""
_LFS = (
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
    ("filter.lfs.process", "git-lfs filter-process"),
    ("filter.lfs.required", "true"),
)


@dataclass(frozen=True, kw_only=True)
class Git:
    """git run in one folder, with an index of its own where ``index`` names a file."""

    folder: Path
    index: Path | None = None

    def __call__(
        self, *arguments: str, stdin: str | None = None, more: Mapping[str, str] | None = None
    ) -> str:
        """Run ``git ARGUMENTS`` and return stdout; raises ``ProcessFailed``, ``TrbError`` without git."""
        try:
            return process.run(
                ["git", *arguments], env={**self.env(), **(more or {})}, cwd=self.folder, stdin=stdin
            )
        except FileNotFoundError:
            raise TrbError(
                Code.ENGINE_MISSING, "git is not installed", remedy="install it: apt-get install git"
            ) from None

    def env(self) -> dict[str, str]:
        """The environment of git and of its hooks; messages are read, so they are in English."""
        env = {key: value for key, value in os.environ.items() if key not in _OURS}
        env["LC_ALL"] = "C"
        if self.index is not None:
            env["GIT_INDEX_FILE"] = str(self.index)
        return env

    def ask(self, *arguments: str) -> str:
        """One line of output; empty where git says no."""
        try:
            return self(*arguments).strip()
        except process.ProcessFailed:
            return ""

    def path(self, name: str) -> Path:
        """Where git keeps ``name`` (MERGE_HEAD, hooks/pre-commit) for this work tree."""
        return self.folder / self("rev-parse", "--git-path", name).rstrip("\n")

    def hook(self, name: str, *arguments: str) -> str:
        """Run one of the user's hooks, if there is one; its output. Raises ``ProcessFailed``."""
        file = self.path(f"hooks/{name}")
        if not (file.is_file() and os.access(file, os.X_OK)):
            return ""
        argv = [str(file.absolute()), *arguments]
        try:
            return process.run(argv, env=self.env(), cwd=self.folder)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise process.ProcessFailed(argv, 127, "", _cannot_run(file, error)) from None
        try:  # without a first line that names an interpreter: git takes sh
            return process.run(["/bin/sh", *argv], env=self.env(), cwd=self.folder)
        except process.ProcessFailed as error:
            raise process.ProcessFailed(argv, error.code, error.stdout, error.stderr) from None


def _cannot_run(hook: Path, error: OSError) -> str:
    with hook.open("rb") as stream:
        first = stream.readline(200).decode("utf-8", "replace").strip()
    named = f"; its first line is '{first}'" if first.startswith("#!") else ""
    return f"{hook} cannot be run: {error.strerror}{named}"


def find(folder: Path) -> Path | None:
    """The top of the work tree that ``folder`` is in, None where there is none. Raises ``TrbError``."""
    try:
        top = Git(folder=folder)("rev-parse", "--show-toplevel").rstrip("\n")
    except process.ProcessFailed as error:
        if "not a git repository" in error.stderr:
            return None
        raise refused(error, str(folder), "see 'git status' in that folder") from None
    return Path(top)


def last_commit(folder: Path) -> str:
    """The last commit that changed a folder, with ``-dirty`` where its files differ; empty without git."""
    try:
        git = Git(folder=folder)
        commit = git.ask("log", "-1", "--format=%H", "--", ".")
        dirty = commit and git.ask("status", "--porcelain", "--", ".")
    except TrbError:
        return ""
    return f"{commit}-dirty" if dirty else commit


def refused(error: process.ProcessFailed, where: str, remedy: str) -> TrbError:
    """What git said, as one error."""
    said = [line for line in (error.stderr or error.stdout).splitlines() if line.strip()]
    reason = "\n  ".join(said[-6:]) or f"exit code {error.code}"
    return TrbError(Code.GIT_REFUSED, f"git {_verb(error.argv)} failed: {reason}", where=where, remedy=remedy)


def _verb(argv: Sequence[str]) -> str:
    """``commit-tree`` of ``git -c x=y commit-tree …``."""
    words = iter(argv[1:])
    for word in words:
        if word == "-c":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def lfs_settings(git: Git) -> tuple[str, ...]:
    """Options that make one git command use git-lfs, also where nobody ran ``git lfs install``."""
    if git.ask("config", "filter.lfs.clean"):
        return ()
    return tuple(word for key, value in _LFS for word in ("-c", f"{key}={value}"))


def need_lfs(git: Git) -> None:
    """``TrbError`` ENGINE_MISSING where git-lfs is not installed."""
    if not git.ask("lfs", "version"):
        raise TrbError(
            Code.ENGINE_MISSING,
            "git-lfs is not installed, and the weights are too large for git",
            remedy="install it (apt-get install git-lfs, brew install git-lfs, https://git-lfs.com); or keep "
            "them out of git (--weights external --weights-url URL), or in git itself (--weights git)",
        )
