"""Earlier contents of a repository's files in git, and the name of its user there."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from pathlib import Path

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.ship.vcs.git import Git, top_level

COMMITS = 100
"""Commits of a file that are looked through, the newest first."""


def content(root: Path, path: str, matches: Callable[[bytes], bool]) -> bytes | None:
    """The content of a file that matches, staged or in a commit; None if git does not have it."""
    git = Git(folder=root)
    try:
        if top_level(root) is None:
            return None
        listed = git.ask("--literal-pathspecs", "log", f"-{COMMITS}", "--format=%H", "--", path).split()
        for revision in ("", *listed):
            name = git.ask("rev-parse", "--verify", "--quiet", f"{revision}:./{path}")
            if name and matches(data := git("cat-file", "blob", name).encode("utf-8", "surrogateescape")):
                return data
    except TrbError:  # no git, or none that works: then the text is not there
        return None
    return None


def user(root: Path) -> str:
    """``Name <mail>`` of git's configuration, else the name of the user of this machine."""
    git = Git(folder=root)
    try:
        name, mail = (git.ask("config", f"user.{key}") for key in ("name", "email"))
    except TrbError:
        name = mail = ""
    if name or mail:
        return f"{name} <{mail}>" if name and mail else name or mail
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
