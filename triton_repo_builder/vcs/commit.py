"""``trb commit``: a model repository, and nothing else, as one commit.

The tree is made in an index of its own, so what the user has staged or edited elsewhere is not touched; the
commit then becomes the branch's tip by compare-and-swap. Of the user's index only the entries that the commit
has changed are brought up to date: the repository's own, and what a pre-commit hook staged beside them.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder import (
    check,
    process,
    releases,
    repository,
)
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.vcs import (
    git,
    large_files,
    target_branch,
    trailers,
)
from triton_repo_builder.vcs.git import Git
from triton_repo_builder.vcs.target_branch import Target


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the user asked for."""

    message: str
    branch: str | None = None
    push: bool = False
    sign: bool = False
    force: bool = False
    """Commit also what ``trb check`` finds wrong."""
    verify: bool = True
    """Run the user's hooks."""
    weights: str | None = None
    """``lfs``, ``git`` or ``external``; None: LFS, and what lies elsewhere stays there."""
    threshold: int = large_files.THRESHOLD
    url: str = ""
    """With ``external``: the folder or bucket in which the weights lie."""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """What was done."""

    commit: str
    """Hash of the commit that holds the repository as it is."""
    branch: str
    """Empty where HEAD is detached."""
    changed: tuple[str, ...]
    """Paths from the top of the work tree; empty where there was nothing to commit."""
    large: tuple[str, ...]
    """Files in git LFS, or outside git."""
    pushed: str = ""
    """The remote."""
    notes: tuple[str, ...] = ()


def commit(path: Path, order: Order) -> Committed:
    """Commit ``path``. Raises ``TrbError``; then no branch has moved."""
    read = repository.read(path)
    _check(read, order)
    notes: list[str] = []
    top = git.find(path) or _init(path, notes)
    here = Git(folder=top)
    target = target_branch.target(here, order.branch)
    remote = target_branch.remote(here, target.branch) if order.push else ""
    target_branch.check_lock(here)
    prefix = path.resolve().relative_to(top.resolve()).as_posix()
    large, more = large_files.prepare(read, here, order.weights, order.threshold, order.url)
    notes += more
    with tempfile.TemporaryDirectory(prefix="trb-commit-") as scratch:
        private = Git(folder=top, index=Path(scratch) / "index")
        made, changed = _commit(private, target, path, prefix, order)
    if made:
        by_hooks = [name for name in changed if prefix != "." and not name.startswith(f"{prefix}/")]
        _move(here, target, made, (prefix, *by_hooks), order, notes)
    if remote:
        _push(here, remote, target.branch, large, order, made or target.parent)
    return Committed(
        commit=made or target.parent,
        branch=target.branch,
        changed=tuple(map(_printable, changed)),
        large=tuple(map(_printable, large)),
        pushed=remote,
        notes=tuple(notes),
    )


def _check(read: Repository, order: Order) -> None:
    entries = (read.manifest or {}).get("endpoints", {}).values()
    named = sorted({str(entry["triton_release"]) for entry in entries if entry.get("triton_release")})
    release = releases.get(named[0]) if named else releases.default()
    errors = [finding for finding in check.check(read, release) if finding.severity == "error"]
    if errors and not order.force:
        shown = "".join(f"\n  {finding.where}: {finding.message}" for finding in errors[:5])
        raise TrbError(
            Code.FAILED_CHECKS,
            f"trb check finds errors ({len(errors)}), nothing was committed{shown}",
            where=str(read.path),
            remedy=f"correct that ('trb check {read.path}' says how), or commit it all the same with --force",
        )


def _init(path: Path, notes: list[str]) -> Path:
    """A git repository one level above: Triton takes each folder inside for a model, ``.git`` too."""
    parent = path.resolve().parent
    if parent in (Path.home(), Path(parent.anchor)):
        raise TrbError(
            Code.GIT_REFUSED,
            f"is in no git repository, and one in {parent} would take in everything there",
            where=str(path),
            remedy="move it into a folder of its own and commit there, or run 'git init' where you want it",
        )
    try:
        Git(folder=parent)("init", "-q")
    except process.ProcessFailed as error:
        raise git.refused(error, str(parent), "run 'git init' in the folder above the repository") from None
    notes.append(f"made a git repository in {parent} (git init)")
    return parent


def _commit(
    private: Git, target: Target, path: Path, prefix: str, order: Order
) -> tuple[str, tuple[str, ...]]:
    """The new commit and the paths that it changes; empty where it would change none."""
    try:
        private("read-tree", *([target.parent] if target.parent else ["--empty"]))
        tree = _tree(private, path, prefix)
        before = private.ask("rev-parse", f"{target.parent}^{{tree}}") if target.parent else ""
        if tree == before:
            return "", ()
        if order.verify:
            private.hook("pre-commit")
            tree = private("write-tree").strip()  # a hook may have added to the index
        text = trailers.write(repository.read(path), order.message, private)
        text = _edited(private, text, path) if order.verify else text
        difference = ("diff-tree", "-r", "-z", "--name-only", before, tree) if before else ("ls-files", "-z")
        changed = private(*difference).split("\0")[:-1]
        parents = ["-p", target.parent] if target.parent else []
        signed = order.sign or private.ask("config", "--type=bool", "commit.gpgsign") == "true"
        made = private("commit-tree", tree, *parents, *(["-S"] if signed else []), stdin=text)
    except process.ProcessFailed as error:
        raise _explained(error, path) from None
    return made.strip(), tuple(changed)


def _tree(private: Git, path: Path, prefix: str) -> str:
    """The parent's tree with the repository's folder as it is on disk."""
    private("--literal-pathspecs", "rm", "-r", "-q", "--cached", "--ignore-unmatch", "--", prefix)
    own = "".join(f"{prefix}/{name}\0" for name in large_files.committed(path, private, prefix))
    private(
        "--literal-pathspecs",
        *git.lfs_settings(private),
        *("-c", "core.safecrlf=false"),
        *("add", "-f", "--pathspec-from-file=-", "--pathspec-file-nul"),
        stdin=own,
    )
    return private("write-tree").strip()


def _edited(private: Git, text: str, path: Path) -> str:
    """The message after the user's hooks had their say."""
    assert private.index is not None
    file = private.index.with_name("COMMIT_EDITMSG")
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    private.hook("prepare-commit-msg", str(file), "message")
    private.hook("commit-msg", str(file))
    found = file.read_text(encoding="utf-8", errors="surrogateescape") if file.is_file() else ""
    edited = private("stripspace", stdin=found)
    if not edited.strip():
        raise TrbError(
            Code.GIT_REFUSED,
            "your prepare-commit-msg or commit-msg hook left an empty message, nothing was committed",
            where=str(path),
            remedy="see what the hook wants of a message, or leave hooks out with --no-verify",
        )
    return edited


def _explained(error: process.ProcessFailed, path: Path) -> TrbError:
    said = error.stderr + error.stdout
    hook = Path(error.argv[0]).name
    if error.argv[0] != "git":
        lines = "".join(f"\n  {line}" for line in said.strip().splitlines()[-12:])
        return TrbError(
            Code.GIT_REFUSED,
            f"your {hook} hook refused, nothing was committed{lines}",
            where=str(path),
            remedy="correct what it says, or leave hooks out with --no-verify",
        )
    if "tell me who you are" in said or "empty ident" in said or "auto-detect email" in said:
        remedy = 'say who you are: git config user.name "…" and git config user.email "…"'
    elif "gpg" in said or "sign" in said:
        remedy = "set user.signingkey (and gpg.format) so that 'git commit -S' works, or leave out --sign"
    else:
        remedy = "correct that and commit again; no branch has moved"
    return git.refused(error, str(path), remedy)


def _move(
    here: Git, target: Target, made: str, paths: tuple[str, ...], order: Order, notes: list[str]
) -> None:
    subject = order.message.strip().splitlines()[0]
    try:
        here("update-ref", "-m", f"commit: {subject}", target.ref, made, target.old)
    except process.ProcessFailed as error:
        raise git.refused(
            error, str(here.folder), "another commit came in between: run trb commit again"
        ) from None
    if not target.current:
        return
    if not target.branch:
        notes.append(f"HEAD is detached: keep the commit with 'git branch NAME {made[:12]}'")
    try:
        here(
            "--literal-pathspecs",
            *("reset", "-q", "--pathspec-from-file=-", "--pathspec-file-nul"),
            stdin="".join(f"{path}\0" for path in paths),
        )
    except process.ProcessFailed as error:
        said = (error.stderr.strip().splitlines() or [""])[-1]
        notes.append(f"the commit is made, but: {said} (then: git reset -- {paths[0]})")
    try:
        if order.verify:
            here.hook("post-commit")
    except process.ProcessFailed as error:
        said = ((error.stderr or error.stdout).strip().splitlines() or [f"exit code {error.code}"])[-1]
        notes.append(f"the commit is made, but your post-commit hook failed: {said}")


def _printable(name: str) -> str:
    """A path of git's, whose bytes may be no text."""
    return os.fsencode(name).decode("utf-8", "replace")


def _push(here: Git, remote: str, branch: str, large: tuple[str, ...], order: Order, made: str) -> None:
    try:
        if large and order.weights in (None, large_files.LFS):
            here("lfs", "push", remote, branch)
        here(
            "push",
            *(() if order.verify else ("--no-verify",)),
            remote,
            f"refs/heads/{branch}:refs/heads/{branch}",
        )
    except process.ProcessFailed as error:
        said = "\n  ".join((error.stderr or error.stdout).strip().splitlines()[-6:])
        raise TrbError(
            Code.GIT_PUSH_FAILED,
            f"the commit {made[:12]} is made, but {remote} did not take it:\n  {said}",
            where=branch,
            remedy=f"correct that (git pull --rebase {remote} {branch}, where it has moved), then run "
            "the same trb commit --push again",
        ) from None
