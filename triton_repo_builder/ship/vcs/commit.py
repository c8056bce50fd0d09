"""``trb commit``: a model repository, and nothing else, as one commit.

``git commit`` makes it, with the user's hooks and signature, from an index that starts as the branch's tip:
staged or edited files elsewhere are neither committed nor touched. Afterwards the user's own index
gets the entries that the commit has changed: the repository's, and what a pre-commit hook staged beside them.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import check, repository
from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Manifest
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.ship.options import CommitOptions
from triton_repo_builder.ship.vcs import gate, large_files, read_back, scratch, target_branch
from triton_repo_builder.ship.vcs.git import Git, failed_hook, lfs_settings, refused, top_level
from triton_repo_builder.ship.vcs.target_branch import Target
from triton_repo_builder.ship.vcs.trailers import trailers


@dataclass(frozen=True, kw_only=True)
class Committed:
    """Result of a commit."""

    commit: str
    """Hash of the commit that holds the repository as it is."""
    branch: str
    """Empty: HEAD is detached."""
    changed: tuple[str, ...]
    """Paths from the top of the work tree; empty if there was nothing to commit."""
    large: tuple[str, ...]
    """Files in git LFS, or outside git."""
    new_branch: bool = False
    """The branch was created at ``commit``, which was there already."""
    pushed: str = ""
    """The remote that has the branch now."""
    sent: bool = False
    """False: that remote had it before."""
    notes: tuple[str, ...] = ()


def commit(path: Path, options: CommitOptions) -> Committed:
    """Commit ``path``. Raises ``TrbError``; then no branch has moved."""
    repo = repository.read(path)
    large_files.refuse_nested(path)
    accepted = check.refuse_errors(repo, "nothing was committed", "commit anyway", force=options.force)
    notes = list(accepted)
    top = top_level(path) or _init(path, notes)
    git = Git(folder=top)
    if scratch.sweep(git):
        notes.append("removed what a trb commit that was killed had left in git's folder")
    target = target_branch.target(git, options.branch)
    with ExitStack() as held:
        if target.current:
            # One file has the message of every commit in this work tree: the other's would be committed.
            held.enter_context(staging.exclusive(Path(git("rev-parse", "--absolute-git-dir").rstrip("\n"))))
            target = target_branch.target(git, options.branch)
        remote = target_branch.remote(git, target.branch) if options.push else ""
        target_branch.check_lock(git, target.branch)
        prefix = path.resolve().relative_to(top.resolve()).as_posix()
        large, large_notes = large_files.prepare(repo, git, options.weights, options.threshold, options.url)
        notes += large_notes
        with scratch.folder(git) as folder:
            try:
                with target_branch.private(git, target, folder) as private:
                    sha = _commit(private, target, path, prefix, options, folder, notes)
                hook = failed_hook(folder / "trace")
            except process.ProcessFailed as error:
                explained = _explained(error, failed_hook(folder / "trace"), path, sign_option=options.sign)
                raise gate.refusal(folder, path, prefix) or explained from None
        changed: tuple[str, ...] = ()
        if sha:
            changed = tuple(
                git("diff-tree", "--root", "-r", "-z", "--name-only", "--no-commit-id", sha).split("\0")[:-1]
            )
            _finish(git, target, sha, prefix, changed, options, notes)
            if hook:
                notes.append(f"the commit is made, but your {hook} hook failed")
        new_branch = not sha and _create(git, target)
        has_branch = bool(sha or target.parent)
    return Committed(
        commit=sha or target.parent,
        branch=target.branch,
        changed=tuple(map(_printable, changed)),
        large=tuple(map(_printable, large)),
        new_branch=new_branch,
        sent=bool(remote) and has_branch and _push(git, remote, target.branch, large, options, sha),
        pushed=remote if has_branch else "",
        notes=tuple(notes),
    )


def _init(path: Path, notes: list[str]) -> Path:
    """Make a git repository one level above: Triton takes each folder inside for a model, ``.git`` too."""
    parent = path.resolve().parent
    if parent in (Path.home(), Path(parent.anchor)):
        raise TrbError(
            Code.GIT_REFUSED,
            f"not in a git repository, and one in {parent} would include everything there",
            where=str(path),
            remedy="move it into a folder of its own and commit there, or run 'git init' where you want it",
        )
    try:
        Git(folder=parent)("init", "-q")
    except process.ProcessFailed as error:
        raise refused(error, str(parent), "run 'git init' in the folder above the repository") from None
    notes.append(f"made a git repository in {parent} (git init)")
    return parent


def _commit(
    private: Git,
    target: Target,
    path: Path,
    prefix: str,
    options: CommitOptions,
    folder: Path,
    notes: list[str],
) -> str:
    """The new commit; empty if it would change nothing."""
    private("read-tree", *([target.parent] if target.parent else ["--empty"]))
    private("--literal-pathspecs", "rm", "-r", "-q", "--cached", "--ignore-unmatch", "--", prefix)
    lfs = lfs_settings(private)
    private(
        "--literal-pathspecs",
        *lfs,
        *("-c", "core.safecrlf=false"),
        *("add", "-f", "--pathspec-from-file=-", "--pathspec-file-nul"),
        stdin="".join(f"{prefix}/{name}\0" for name in large_files.committed(path, private, prefix)),
    )
    committed = read_back.read(private, path, prefix, folder)
    if options.force:
        notes += [
            f"committed though not as the manifest records it: {name}, {cause}"
            for name, cause in committed.wrong.items()
            if not any(name in note for note in notes)  # trb check has said so
        ]
    else:
        read_back.refuse(committed, path)
    if not private("diff", "--cached", "--name-only"):
        return ""
    editor = gate.command(private, options.message, "" if options.force else committed.tree, folder)
    trace = {"GIT_TRACE2_EVENT": str(folder / "trace"), "GIT_EDITOR": editor}
    replace(private, variables={**private.variables, **trace})(
        *lfs,
        *("-c", "trailer.ifexists=addIfDifferent", "-c", "trailer.separators=:", "-c", "gc.auto=0"),
        *(() if options.verify else ("-c", f"core.hooksPath={os.devnull}")),
        *("commit", "--quiet", "--edit", "--no-status", "--cleanup=whitespace"),
        f"--message={options.message.strip()}",
        *(
            f"--trailer={key}: {value}"
            for key, value in trailers(repository.read_manifest(path) or Manifest(), committed.wrong)
        ),
        *(("--gpg-sign",) if options.sign else ()),
    )
    sha = private("rev-parse", "HEAD").strip()
    for name in read_back.changed_by_hook(private, committed.tree, sha):
        notes.append(f"committed though your pre-commit hook has changed it: {_printable(name)}")
    return sha


def _create(git: Git, target: Target) -> bool:
    """Create the requested branch if it does not exist and nothing was committed to it."""
    if target.current or target.old or not target.parent:
        return False
    try:
        git(
            "update-ref",
            "-m",
            "branch: Created by trb commit",
            f"refs/heads/{target.branch}",
            target.parent,
            "",
        )
    except process.ProcessFailed as error:
        raise refused(error, str(git.folder), "run trb commit again") from None
    return True


def _explained(error: process.ProcessFailed, hook: str, path: Path, *, sign_option: bool) -> TrbError:
    """The error for a failed ``git commit``. ``sign_option``: --sign was given."""
    output = error.stderr + error.stdout
    if hook:
        lines = "".join(f"\n  {line}" for line in output.strip().splitlines()[-12:])
        return TrbError(
            Code.GIT_REFUSED,
            f"your {hook} hook refused, nothing was committed{lines}",
            where=str(path),
            remedy="correct that, or skip your hooks with --no-verify",
        )
    if "empty commit message" in output or "could not read commit message" in output:
        return TrbError(
            Code.GIT_REFUSED,
            "git could not read the commit's message, nothing was committed: your prepare-commit-msg or "
            "commit-msg hook left an empty message, or the disk failed",
            where=str(path),
            remedy="correct the hook, or skip your hooks with --no-verify; or make room on the disk",
        )
    # All that git says of an object that it could not write, or not read.
    if "is not a valid object" in output or ("loose object" in output and "is corrupt" in output):
        return TrbError(
            Code.GIT_REFUSED,
            "git could not write or read an object of the commit, no branch has moved",
            where=str(path),
            remedy="look for a full or failing disk under git's folder, and whether you may write there; "
            "then commit again",
        )
    if "tell me who you are" in output or "empty ident" in output or "auto-detect email" in output:
        remedy = 'set your name: git config user.name "…" and git config user.email "…"'
    elif "gpg" in output or "sign" in output or "public key" in output:  # the last is of ssh-keygen
        without = "leave out --sign" if sign_option else "unset commit.gpgsign"
        remedy = f"set user.signingkey (and gpg.format) so that 'git commit -S' works, or {without}"
    elif "unknown option" in output:
        remedy = "use git 2.32 or later"
    else:
        remedy = "correct that and commit again; no branch has moved"
    return refused(error, str(path), remedy)


def _finish(
    git: Git,
    target: Target,
    sha: str,
    prefix: str,
    changed: tuple[str, ...],
    options: CommitOptions,
    notes: list[str],
) -> None:
    """Move the branch, unless git has, and bring the user's index up to date."""
    subject = options.message.strip().splitlines()[0]
    overtaken = "another commit came in between: run trb commit again"
    try:
        if not target.current:
            git("update-ref", "-m", f"commit: {subject}", f"refs/heads/{target.branch}", sha, target.old)
            return
        if git.ask("rev-parse", "--verify", "--quiet", f"{sha}^") != target.parent:
            # Its tree began as another commit than its parent: it would undo what came in between.
            git("update-ref", "-m", f"undo: {subject}", "HEAD", f"{sha}^", sha)
            raise TrbError(Code.GIT_REFUSED, "the branch has moved", where=str(git.folder), remedy=overtaken)
    except process.ProcessFailed as error:
        raise refused(error, str(git.folder), overtaken) from None
    if not target.branch:
        notes.append(f"HEAD is detached: keep the commit with 'git branch NAME {sha[:12]}'")
    by_hooks = [name for name in changed if prefix != "." and not name.startswith(f"{prefix}/")]
    try:
        git(
            "--literal-pathspecs",
            *("reset", "-q", "--pathspec-from-file=-", "--pathspec-file-nul"),
            stdin="".join(f"{name}\0" for name in (prefix, *by_hooks)),
        )
    except process.ProcessFailed as error:
        reason = (error.stderr.strip().splitlines() or [""])[-1]
        notes.append(f"the commit is made, but: {reason} (then: git reset -- {prefix})")


def _printable(name: str) -> str:
    """A path of git as text: its bytes may not be UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


def _push(
    git: Git, remote: str, branch: str, large: tuple[str, ...], options: CommitOptions, sha: str
) -> bool:
    """Push the branch; False if the remote had it. ``sha``: the new commit, empty if there is none."""
    try:
        if large and options.weights in (None, large_files.LFS):
            git("lfs", "push", remote, branch)
        output = git(
            "push",
            "--porcelain",
            *(() if options.verify else ("--no-verify",)),
            remote,
            f"refs/heads/{branch}:refs/heads/{branch}",
        )
    except process.ProcessFailed as error:
        reason = "\n  ".join((error.stderr or error.stdout).strip().splitlines()[-6:])
        outcome = f"the commit {sha[:12]} is made, but " if sha else "there was nothing to commit, and "
        raise TrbError(
            Code.GIT_PUSH_FAILED,
            f"{outcome}{remote} did not take the branch:\n  {reason}",
            where=branch,
            remedy=f"correct that (git pull --rebase {remote} {branch}, if it has moved), then run "
            "the same trb commit --push again",
        ) from None
    return not any(line.startswith("=") for line in output.splitlines())
