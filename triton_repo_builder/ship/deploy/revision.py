"""A revision of a model repository as the user names it: a folder, what was pushed to a URL, a git commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import integrity, manifest
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.deploy import snapshot
from triton_repo_builder.ship.stores import external_weights
from triton_repo_builder.ship.stores.bucket import BucketStore
from triton_repo_builder.ship.stores.signing_keys import Trust
from triton_repo_builder.ship.stores.store import Location, Progress
from triton_repo_builder.ship.vcs import git as vcs
from triton_repo_builder.ship.vcs import tree
from triton_repo_builder.ship.vcs.git import Git
from triton_repo_builder.ship.vcs.tree import Tree

DEFAULT = "model_repository"
"""The folder of a commit that is meant if none is named."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A revision, while it is open."""

    name: str
    """For people: the folder, the URL with the digest, or COMMIT:PATH with a short hash."""
    path: Path
    """The folder of the repository, to be read only: the user's own, or a temporary one."""
    commit: str = ""
    """The git commit, for a folder the last one that changed it with ``-dirty`` if files differ; or empty."""
    digest: str = ""
    """``sha256:…`` of what was pushed; or empty."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Hex sha256 of files that are not in ``path``: from a push's index, git, pointers of LFS."""

    def sha256(self, path: str) -> str:
        """Digest of a file by its path in the repository; empty if the revision does not have it."""
        if recorded := self.digests.get(path):
            return recorded
        file = self.path / path
        return files.hash_file(file) if file.is_file() else ""


def quiet(file: str, done: int, total: int) -> None:
    """A progress that nobody sees."""


@contextlib.contextmanager
def opened(
    spec: str,
    *,
    weights: bool,
    progress: Progress = quiet,
    trust: Trust | None = None,
) -> Iterator[Revision]:
    """``DIR``, ``URL[@sha256:…]``, or ``COMMIT[:PATH]`` of the git repository around the current folder.

    With ``weights`` every file is there and as manifest.json says; else only the small ones that describe the
    models, and ``digests`` has the digests of the others. With ``trust`` only what an allowed key signed is
    opened, which is something that was pushed. A temporary folder is removed at the end.

    Raises ``TrbError`` NOT_FOUND, GIT_REFUSED, REPOSITORY_UNREADABLE, USAGE (ambiguous, or unsigned by its
    nature), DIGEST_MISMATCH, BAD_SIGNATURE, and those that the store raises.
    """
    with staging.temporary("revision") as scratch:
        try:
            with staging.filling():
                revision = _open(spec, scratch, weights, progress, trust)
            if weights and (recorded := manifest.read(revision.path)):
                integrity.prove(revision.path, recorded, revision.name)
        except TrbError as error:
            error.where = error.where.replace(f"{scratch}/", "")
            raise
        yield revision


def _open(spec: str, scratch: Path, weights: bool, progress: Progress, trust: Trust | None) -> Revision:
    if "://" in spec:
        location = stores.parse(spec)
        signed = stores.verified(location, trust)[0] if trust is not None else location
        return _pushed(signed, scratch, weights, progress)
    if trust is not None:
        raise TrbError(
            Code.USAGE,
            "only what was pushed has a signature of trb's",
            where=spec,
            remedy="name the URL of a pushed revision, or leave --require-signature out; of a commit see "
            "git verify-commit",
        )
    folder, git = Path(spec), Git(folder=Path.cwd())
    if folder.is_dir():
        if spec[0] not in "./" and spec[-1] != "/" and tree.resolve(git, spec):
            raise TrbError(
                Code.USAGE,
                "is a folder here, and also a revision of git",
                where=spec,
                remedy=f"write ./{spec} for the folder, {spec}:PATH for the folder PATH of the revision",
            )
        return Revision(name=spec, path=folder, commit=vcs.last_commit(folder))
    revision, colon, path = spec.partition(":")
    if not colon and not tree.resolve(git, revision):
        raise tree.unknown(git, spec, "no such folder, and no revision of git", Code.NOT_FOUND)
    folder_tree = tree.find(git, revision, path) if colon else _only(tree.find(git, revision, ""), revision)
    return _committed(folder_tree, scratch, weights, progress)


def _committed(top: Tree, scratch: Path, weights: bool, progress: Progress) -> Revision:
    name = f"{top.commit[:12]}:{top.path}"
    if not weights:
        digests = tree.small_files(
            top, scratch, lambda blob: snapshot.describes(blob.path, blob.size), hashed=True
        )
        return Revision(name=name, path=scratch, commit=top.commit, digests=digests)
    path = tree.all_files(top, scratch)
    if recorded := manifest.read(path):
        external_weights.fetch(path, recorded, lambda text: progress(text, 0, 0))
    return Revision(name=name, path=path, commit=top.commit)


def _only(top: Tree, revision: str) -> Tree:
    """The folder of a revision that holds a repository of trb: ``model_repository``, or the only one."""
    blobs = [blob for blob in top.blobs() if blob.path.split("/")[-1] == repository.MANIFEST]
    folders = [
        blob.path.rpartition("/")[0]
        for blob, content in zip(blobs, top.contents(tuple(blobs)), strict=True)
        if _is_ours(content)
    ]
    if DEFAULT in folders or (not folders and top.git.ask("rev-parse", f"{top.commit}:{DEFAULT}")):
        return tree.find(top.git, top.commit, DEFAULT)
    if len(folders) != 1:
        listed = ", ".join(f"{revision}:{folder}" for folder in folders[:5])
        raise TrbError(
            Code.USAGE if folders else Code.REPOSITORY_UNREADABLE,
            f"holds {len(folders)} model repositories" if folders else "holds no repository that trb built",
            where=revision,
            remedy=f"name one: {listed}" if folders else "name its folder: COMMIT:PATH",
        )
    return tree.find(top.git, top.commit, folders[0])


def _is_ours(content: bytes) -> bool:
    """Whether a manifest.json is one of trb."""
    try:
        return manifest.is_ours(files.load_json(content))
    except ValueError:
        return False


def _pushed(location: Location, scratch: Path, weights: bool, progress: Progress) -> Revision:
    store, path = stores.store(location), scratch / location.name
    path.mkdir()
    if weights or not isinstance(store, BucketStore):  # an image has its files in layers, and is read whole
        digest = store.pull(path, progress).revision
        return Revision(name=_shown(location, digest), path=path, digest=digest)
    hexed, index = store.index()
    small = tuple(entry for entry in index.entries if snapshot.describes(entry.path, entry.bytes))
    store.fetch(hexed, small, path, progress)
    for entry in index.entries:
        (path / entry.path).parent.mkdir(parents=True, exist_ok=True)
    digest = f"sha256:{hexed}"
    digests = {entry.path: entry.sha256 for entry in index.entries}
    return Revision(name=_shown(location, digest), path=path, digest=digest, digests=digests)


def _shown(location: Location, digest: str) -> str:
    return f"{str(location).partition('@')[0]}@{digest}"
