"""The one door to git: commands in one folder, in English, free of an outer git's environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError

_OUTER = (
    *("GIT_INDEX_FILE", "GIT_PREFIX", "GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    "GIT_TRACE2_PARENT_SID",
)
"""Variables that are set inside a hook of another commit: they would direct git into that commit."""
_LFS = (
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
    ("filter.lfs.process", "git-lfs filter-process"),
    ("filter.lfs.required", "true"),
)
_PATTERNS = (".gitattributes", ".gitignore", ".gitmodules", ".lfsconfig")
_FULL = ("no space left on device", "out of diskspace", "disk quota exceeded")
"""Messages of git, git-lfs and the C library about a full disk."""


@dataclass(frozen=True, kw_only=True)
class Git:
    """git in one folder; ``variables`` may give it an index or a HEAD of its own."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run ``git ARGUMENTS`` and return stdout; raises ``ProcessFailed``, ``TrbError`` without git."""
        try:
            return process.run(["git", *arguments], env=self._env(), cwd=self.folder, stdin=stdin)
        except FileNotFoundError:
            raise TrbError(
                Code.ENGINE_MISSING, "git is not installed", remedy="install it: apt-get install git"
            ) from None

    def stream(self, *arguments: str, stdin: Path) -> AbstractContextManager[IO[bytes]]:
        """Stdout of ``git ARGUMENTS`` as a stream, its stdin from a file."""
        return process.reading(["git", *arguments], stdin=stdin, env=self._env(), cwd=self.folder)

    def _env(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if key not in _OUTER}
        # core.fsmonitor names a program that git status would run; an archive may bring its own .git/config.
        count = int(env.get("GIT_CONFIG_COUNT") or 0)
        setting = {f"GIT_CONFIG_KEY_{count}": "core.fsmonitor", f"GIT_CONFIG_VALUE_{count}": "false"}
        return {**env, **setting, "GIT_CONFIG_COUNT": str(count + 1), "LC_ALL": "C", **self.variables}

    def ask(self, *arguments: str) -> str:
        """The output without its line end; empty if git fails."""
        try:
            return self(*arguments).strip()
        except process.ProcessFailed:
            return ""

    def path(self, name: str) -> Path:
        """Path of a file of git's (MERGE_HEAD, hooks/pre-commit) for this work tree."""
        return self.folder / self("rev-parse", "--git-path", name).rstrip("\n")

    def paths(self, *names: str) -> list[Path]:
        """Paths of several such files, asked at once: git takes longer to start than to answer."""
        options = (word for name in names for word in ("--git-path", name))
        lines = self("rev-parse", *options).rstrip("\n").split("\n")
        if len(lines) != len(names):  # a line break in the name of a folder
            return [self.path(name) for name in names]
        return [self.folder / line for line in lines]


def top_level(folder: Path) -> Path | None:
    """The top of the work tree that contains ``folder``, None outside of git. Raises ``TrbError``."""
    refuse_pipes(folder)
    try:
        top = Git(folder=folder)("rev-parse", "--show-toplevel").rstrip("\n")
    except process.ProcessFailed as error:
        if "not a git repository" in error.stderr:
            return None
        raise refused(error, str(folder), "see 'git status' in that folder") from None
    return Path(top)


def refuse_pipes(folder: Path) -> None:
    """Raise GIT_REFUSED if a file of patterns is a pipe or a device: git would wait for it."""
    for place in (folder.resolve(), *folder.resolve().parents):
        for file in (place / name for name in _PATTERNS):
            if file.exists() and not file.is_file() and not file.is_dir():
                raise TrbError(
                    Code.GIT_REFUSED,
                    "not a regular file (a pipe, a socket or a device): git would wait for it",
                    where=str(file),
                    remedy="remove it, and restore the file that was there",
                )
        if (place / ".git").exists():
            return


def last_commit(folder: Path) -> str:
    """The last commit that changed a folder, with ``-dirty`` if its files differ; empty without git."""
    try:
        refuse_pipes(folder)
        git = Git(folder=folder)
        commit = git.ask("log", "-1", "--format=%H", "--", ".")
        dirty = commit and git.ask("status", "--porcelain", "--", ".")
    except TrbError:
        return ""
    return f"{commit}-dirty" if dirty else commit


def failed_hook(trace: Path) -> str:
    """Name of the hook that failed; only git's own trace distinguishes that from other failures."""
    hooks: dict[int, str] = {}
    lines = files.read_text(trace, "replace").splitlines() if trace.is_file() else []
    for event in map(json.loads, lines):
        if "/" in event["sid"]:  # a git that a hook started
            continue
        if event.get("child_class") == "hook":
            hooks[event["child_id"]] = event["hook_name"]
        elif event["event"] == "child_exit" and event["code"] and event["child_id"] in hooks:
            return hooks[event["child_id"]]
    return ""


def refused(error: process.ProcessFailed, where: str, remedy: str) -> TrbError:
    """One error for a git command that failed, with the end of its output; DISK_FULL if that is why."""
    output = error.stderr or error.stdout
    lines = [line for line in output.splitlines() if line.strip()]
    reason = "\n  ".join(lines[-6:]) or f"exit code {error.code}"
    code = Code.GIT_REFUSED
    if any(words in output.casefold() for words in _FULL):
        code = Code.DISK_FULL
        remedy = (
            "free some space on the disk that is named (what git-lfs could not end lies in lfs/tmp of git's "
            "folder, and may go), then run the same command again"
        )
    return TrbError(code, f"git {_verb(error.argv)} failed: {reason}", where=where, remedy=remedy)


def _verb(argv: Sequence[str]) -> str:
    """``commit`` of ``git -c x=y commit …``."""
    words = iter(argv[1:])
    for word in words:
        if word == "-c":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def lfs_settings(git: Git) -> tuple[str, ...]:
    """Options that make one git command use git-lfs, even if nobody ran ``git lfs install``."""
    if git.ask("config", "filter.lfs.clean"):
        return ()
    return tuple(word for key, value in _LFS for word in ("-c", f"{key}={value}"))


def need_lfs(git: Git) -> None:
    """Raise ENGINE_MISSING if git-lfs is not installed."""
    if not git.ask("lfs", "version"):
        raise TrbError(
            Code.ENGINE_MISSING,
            "git-lfs is not installed, and the weights are too large for git",
            remedy="install it (apt-get install git-lfs, brew install git-lfs, https://git-lfs.com); or keep "
            "them out of git (--weights external --weights-url URL), or in git itself (--weights git)",
        )
