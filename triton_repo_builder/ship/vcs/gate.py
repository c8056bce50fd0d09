"""Checks in place of git's editor: after the pre-commit hook, with the message written, before the commit.

It fails, and with it the commit, if git would commit other files than were read back, or another message:
git does not notice that the file of the message could not be written.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.vcs.git import Git

_REWRITTEN, _LOST = "rewritten", "lost"
"""Files in the scratch folder: names that the hook has changed; a mark that the message is not trb's."""


def command(git: Git, message: str, tree: str, scratch: Path) -> str:
    """The shell command. ``tree``: of files that no hook may change; empty with ``--force``.

    With ``--force`` it still fails if the index in ``scratch`` is gone: git would commit nothing.
    """
    conditions = [f"test -d {shlex.quote(str(scratch))}"]
    if not os.access(git.path("hooks/prepare-commit-msg"), os.X_OK):
        ours = shlex.quote(git("stripspace", stdin=message).rstrip("\n"))  # as git does before the trailers
        # Nothing but git and the shell: what else is in PATH is not known.
        begins = (
            f'case "$(git stripspace < "$1")" in {ours}*) ;; *) : > {_file(scratch, _LOST)}; false ;; esac'
        )
        conditions.append(f"{{ {begins}; }}")
    if tree:
        file = _file(scratch, _REWRITTEN)
        compare = f"git diff-index --cached -z --no-renames --diff-filter=MDT --name-only {tree}"
        conditions.append(f"{compare} > {file} && test ! -s {file}")
    return " && ".join((*conditions, ":"))


def refusal(scratch: Path, path: Path, prefix: str) -> TrbError | None:
    """The error if the gate has refused, else None."""
    if (scratch / _LOST).is_file():
        return TrbError(
            Code.GIT_REFUSED,
            "git could not write the message of the commit, nothing was committed",
            where=str(path),
            remedy="look for a full or failing disk under git's folder, then commit again",
        )
    rewritten = scratch / _REWRITTEN
    names = os.fsdecode(files.read(rewritten)).split("\0")[:-1] if rewritten.is_file() else []
    if not names:
        return None
    rest = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    name = names[0] if prefix == "." else names[0].removeprefix(f"{prefix}/")
    return TrbError(
        Code.GIT_REFUSED,
        f"your pre-commit hook has changed a file of trb's{rest}: the manifest would be untrue; nothing was "
        "committed",
        where=str(path / name),
        remedy="let the hook leave out the repository, skip your hooks with --no-verify, or commit anyway "
        "with --force",
    )


def _file(scratch: Path, name: str) -> str:
    return shlex.quote(str(scratch / name))
