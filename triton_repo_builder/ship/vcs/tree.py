"""The folder of a git revision as files, without a change of the user's work tree and index."""

from __future__ import annotations

import hashlib
import posixpath
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files, process, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.vcs.git import Git, lfs_settings, refused

_BLOCK = 1 << 20
"""Bytes that are read at once."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """One file of a revision."""

    path: str
    """Path below the folder."""
    name: str
    """Object name in git."""
    size: int


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A folder of one revision."""

    git: Git
    commit: str
    """The full hash."""
    path: str
    """From the top of the git repository; empty: the top itself."""

    def blobs(self) -> tuple[Blob, ...]:
        """Every file; no links, no submodules. Raises ``ProcessFailed``."""
        blobs = []
        # Without --full-tree git looks, inside of this very tree, for the folder that it was started in.
        listed = self.git("ls-tree", "--full-tree", "-r", "-l", "-z", f"{self.commit}:{self.path}")
        for line in listed.split("\0")[:-1]:
            about, path = line.split("\t", 1)
            mode, _, name, size = about.split()
            if mode.startswith("100"):
                blobs.append(Blob(path=path, name=name, size=int(size)))
        return tuple(blobs)

    def contents(self, blobs: tuple[Blob, ...]) -> tuple[bytes, ...]:
        """The blobs as git stores them: large files may be pointers of git LFS. For small ones."""
        if not blobs:
            return ()
        output = self.git("cat-file", "--batch", stdin="".join(f"{blob.name}\n" for blob in blobs))
        stream, contents = output.encode("utf-8", "surrogateescape"), []
        for blob in blobs:
            start = stream.index(b"\n") + 1
            contents.append(stream[start : start + blob.size])
            stream = stream[start + blob.size + 1 :]
        return tuple(contents)


def find(git: Git, revision: str, path: str) -> Tree:
    """A folder of a revision; ``path`` is from the top, or with ``./`` from the current folder.

    Raises ``TrbError`` GIT_REFUSED if there is no such revision or path, REPOSITORY_UNREADABLE for a file.
    """
    commit = resolve(git, revision)
    if not commit:
        raise unknown(git, f"{revision}:{path}", f"git knows no revision '{revision}'")
    if path.startswith("."):
        path = posixpath.normpath(posixpath.join(git.ask("rev-parse", "--show-prefix"), path))
    path = path.strip("/").removeprefix(".")
    kind = git.ask("cat-file", "-t", f"{commit}:{path}")
    if kind != "tree":
        raise TrbError(
            Code.REPOSITORY_UNREADABLE if kind else Code.GIT_REFUSED,
            "is not a folder of that revision" if kind else "that revision has no such folder",
            where=f"{revision}:{path}",
            remedy="write REVISION:PATH with the path from the top of the git repository to the folder that "
            "holds the model directories",
        )
    return Tree(git=git, commit=commit, path=path)


def unknown(git: Git, spec: str, message: str, code: Code = Code.GIT_REFUSED) -> TrbError:
    """The error for a name that git does not know."""
    if not git.ask("rev-parse", "--git-dir"):
        message, remedy = f"{message}: the current folder is in no git repository", "run trb inside the clone"
    else:
        remedy = "git log lists revisions; 'git fetch' gets new ones, 'git fetch --unshallow' older ones"
    return TrbError(code, message, where=spec, remedy=remedy)


def resolve(git: Git, revision: str) -> str:
    """Hash of the commit that ``revision`` names; empty if there is none."""
    if not revision or revision.startswith("-"):
        return ""
    return git.ask("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")


def small_files(
    tree: Tree, target: Path, selects: Callable[[Blob], bool], *, hashed: bool = False
) -> Mapping[str, str]:
    """Write the files that ``selects`` accepts below ``target``; empty folders mark the rest.

    Returns the sha256 of each file in git LFS, by path, from its pointer. With ``hashed`` also
    of every other file that is not written, which git has to read for that.
    """
    try:
        blobs = tree.blobs()
        small = tuple(blob for blob in blobs if selects(blob) or blob.size <= files.LFS_POINTER_SIZE)
        contents = tree.contents(small)
        for blob in blobs:
            transfer.check_inside(blob.path, f"{tree.commit[:12]}:{tree.path}")
            (target / blob.path).parent.mkdir(parents=True, exist_ok=True)
        sha256_by_path, written = {}, set()
        for blob, content in zip(small, contents, strict=True):
            if sha256 := files.lfs_sha256(content):
                sha256_by_path[blob.path] = sha256
            elif selects(blob):
                (target / blob.path).write_bytes(content)
                written.add(blob.path)
        rest = [blob for blob in blobs if blob.path not in sha256_by_path and blob.path not in written]
        if hashed and rest:
            with tempfile.TemporaryDirectory(prefix="trb-oids-") as scratch:
                read = digests(tree.git, {blob.name for blob in rest}, Path(scratch) / "oids")
            sha256_by_path |= {blob.path: read[blob.name][-1] for blob in rest}
    except process.ProcessFailed as error:
        raise refused(error, f"{tree.commit}:{tree.path}", "see 'git fsck'") from None
    return sha256_by_path


def digests(git: Git, oids: set[str], requests: Path) -> dict[str, tuple[str, ...]]:
    """For each object, the sha256 of its content and, if that is a pointer of git LFS, of its target."""
    requests.write_text("".join(f"{oid}\n" for oid in sorted(oids)))
    by_object: dict[str, tuple[str, ...]] = {}
    with git.stream("cat-file", "--batch", stdin=requests) as stream:
        for oid in sorted(oids):
            header = stream.readline().split()
            if len(header) != 3:  # missing, in a damaged git repository
                by_object[oid] = ("",)
                continue
            left = int(header[2])
            sha256, start = hashlib.sha256(), b""
            while left:
                block = stream.read(min(left, _BLOCK))
                if not block:
                    break
                sha256.update(block)
                start = start or block
                left -= len(block)
            stream.read(1)
            pointed = files.lfs_sha256(start)
            by_object[oid] = (sha256.hexdigest(), *((pointed,) if pointed else ()))
    return by_object


def all_files(tree: Tree, target: Path) -> Path:
    """Check out every file below ``target``, also from git LFS; returns their folder.

    Raises ``TrbError`` ENGINE_MISSING without git-lfs, GIT_REFUSED.
    """
    where = f"{tree.commit[:12]}:{tree.path}"
    with tempfile.TemporaryDirectory(prefix="trb-index-") as scratch:
        private = Git(
            folder=target,
            variables={
                "GIT_DIR": tree.git.ask("rev-parse", "--absolute-git-dir"),
                "GIT_WORK_TREE": str(target),
                "GIT_INDEX_FILE": str(Path(scratch) / "index"),
                "GIT_LFS_SKIP_SMUDGE": "0",
            },
        )
        try:
            private("read-tree", tree.commit)
            listed = private("ls-tree", "-r", "-z", "--name-only", "--full-tree", tree.commit)
            prefix = f"{tree.path}/" if tree.path else ""
            names = [name for name in listed.split("\0")[:-1] if name.startswith(prefix)]
            private(
                *("-c", "core.autocrlf=false", *lfs_settings(private)),
                *("checkout-index", "-q", "-z", "--stdin"),
                stdin="".join(f"{name}\0" for name in names),
            )
        except process.ProcessFailed as error:
            if "lfs" in error.stderr and not private.ask("lfs", "version"):
                raise TrbError(
                    Code.ENGINE_MISSING,
                    "git-lfs is not installed, and files of this revision are in git LFS",
                    where=where,
                    remedy="install it (apt-get install git-lfs, brew install git-lfs, https://git-lfs.com)",
                ) from None
            remedy = "is every object here? git fsck; and for files in git LFS: git lfs fetch origin REVISION"
            raise refused(error, where, remedy) from None
    return target / tree.path
