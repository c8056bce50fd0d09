"""Which files of a repository go to git, which to git LFS, and which lie elsewhere (``trb fetch``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from triton_repo_builder import files, process, repository
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import Manifest, Repository, manifest
from triton_repo_builder.repository.manifest import FileRecord
from triton_repo_builder.stores import external_weights
from triton_repo_builder.vcs import git
from triton_repo_builder.vcs.git import Git

LFS = "lfs"
GIT = "git"
EXTERNAL = "external"
WEIGHTS = (LFS, GIT, EXTERNAL)
THRESHOLD = 1_000_000
"""Bytes from which a file is heavy: each version of it would stay in git for ever."""
ATTRIBUTES = ".gitattributes"
IGNORE = ".gitignore"
_BEGIN, _END = "# written by trb commit: do not edit", "# end of what trb commit wrote"
_BLOCK = re.compile(rf"^{_BEGIN}\r?$.*?^{_END}\r?$\n?", re.MULTILINE | re.DOTALL)


def prepare(
    read: Repository, here: Git, weights: str | None, threshold: int, url: str
) -> tuple[tuple[str, ...], list[str]]:
    """Write ``.gitattributes``, ``.gitignore`` and the manifest's pointers; the heavy files, and notes.

    ``weights`` None: files that lie elsewhere stay there, other heavy ones go to LFS. Raises ``TrbError``.
    """
    root, notes = read.path, list[str]()
    known = dict(read.manifest.files) if read.manifest else {}
    pointed = {name for name, record in known.items() if record.url}
    heavy = [
        name
        for name in walk(root)
        if name in pointed or ((root / name).lstat().st_size >= threshold and not (root / name).is_symlink())
    ]
    external = [name for name in heavy if weights == EXTERNAL or (weights is None and name in pointed)]
    external += sorted(pointed - set(heavy)) if weights is None else []
    if weights == EXTERNAL:
        notes += _store(root, known, external, url)
    elif weights is not None:
        for name in pointed:
            known[name] = replace(known[name], url="")
    if read.manifest is not None and known != read.manifest.files:
        manifest.write(root, replace(read.manifest, files=known))
    lfs = [name for name in heavy if name not in external] if weights != GIT else []
    lines = ["* -text"]  # a checksum is of bytes: no checkout may change line ends
    lines += [f"{in_attributes(name)} filter=lfs diff=lfs merge=lfs -text" for name in lfs]
    _block(root / ATTRIBUTES, lines)
    _block(root / IGNORE, [in_ignore(name) for name in external])
    if lfs:
        git.need_lfs(here)
        notes += _install(here)
    return tuple(sorted({*lfs, *external})), notes


def walk(root: Path) -> Iterator[str]:
    """Paths of all files and links below ``root``, sorted; what running the models left behind is no file."""
    for folder, names, found in os.walk(root):
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        names[:] = sorted(name for name in names if name not in (*links, "__pycache__", ".git"))
        for name in sorted((*found, *links)):
            yield (Path(folder) / name).relative_to(root).as_posix()


def committed(path: Path, here: Git, prefix: str) -> list[str]:
    """What belongs into the commit: what the manifest lists, even where git ignores it, and the rest.

    What git ignores of the rest stays out, and so does what lies elsewhere.
    """
    known = (repository.read_manifest(path) or Manifest()).files
    own = {repository.MANIFEST, *known}
    found = list(walk(path))
    asked = "".join(f"{prefix}/{name}\0" for name in found if name not in own)
    try:
        said = here("check-ignore", "-z", "--stdin", stdin=asked) if asked else ""
    except process.ProcessFailed as error:
        if error.code != 1:  # 1: none is ignored
            raise
        said = ""
    ignored = {name.removeprefix(f"{prefix}/") for name in said.split("\0")}
    return [name for name in found if name not in ignored and not _url(known, name)]


def _store(root: Path, known: dict[str, FileRecord], names: list[str], url: str) -> list[str]:
    if not url and all(_url(known, name) for name in names):
        return []  # they lie elsewhere already, and stay there
    if not url:
        raise TrbError(
            Code.USAGE,
            "where shall the weights lie?",
            where="--weights external",
            remedy="name a folder or bucket with --weights-url: file:///srv/weights, s3://bucket/weights, https://…",
        )
    external_weights.check(url)
    notes = []
    for name in names:
        if name not in known:
            raise TrbError(
                Code.USAGE,
                "only files that trb built can lie elsewhere: the manifest holds their sha256",
                where=str(root / name),
                remedy="commit it with --weights lfs or --weights git",
            )
        sha256 = files.hash_file(root / name)
        target = f"{url.rstrip('/')}/{sha256}"
        if external_weights.put(root / name, target, sha256):
            notes.append(f"copied {name} to {target}")
        known[name] = FileRecord(sha256=sha256, bytes=(root / name).stat().st_size, url=target)
    return notes


def _url(known: Mapping[str, FileRecord], name: str) -> str:
    return known[name].url if name in known else ""


def _install(here: Git) -> list[str]:
    """What lets the user's own git read and push what we put into LFS: its filters and hooks."""
    hook = here.path("hooks/pre-push")
    if hook.is_file() and "git-lfs" in hook.read_text(encoding="utf-8", errors="replace"):
        return []
    try:
        here("lfs", "install", "--local")
        return ["set up git LFS in this git repository (git lfs install --local)"]
    except process.ProcessFailed:  # it writes no hook where the user has one
        here("lfs", "install", "--local", "--skip-repo")
        return [
            "you have hooks of your own, so git-lfs added none: see 'git lfs update --manual', or before "
            "'git push' run 'git lfs push REMOTE BRANCH' (trb commit --push does)"
        ]


def in_attributes(name: str) -> str:
    """A path as .gitattributes understands it: from its folder, nothing in it special.

    A pattern ends at the first blank, unless it is a string as C has it.
    """
    pattern = _anchored(name)
    if not re.search(r"[\x00-\x20\x7f]", pattern):
        return pattern
    quoted = re.sub(r'[\\"]', r"\\\g<0>", pattern)
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda char: f"\\{ord(char[0]):03o}", quoted) + '"'


def in_ignore(name: str) -> str:
    """A path as .gitignore understands it: from its folder, nothing in it special.

    There are no quotes: blanks at the end need a backslash each, and for a line's end stands a wildcard.
    """
    pattern = re.sub(r" +\Z", lambda blanks: r"\ " * len(blanks[0]), _anchored(name))
    return re.sub(r"\n|\r\Z", "?", pattern)


def _anchored(name: str) -> str:
    """The path from the file's folder, so that no ``!`` or ``#`` comes first, wildcards escaped."""
    return "/" + re.sub(r"[\\*?\[\]]", r"\\\g<0>", name)


def _block(file: Path, lines: list[str]) -> None:
    """Our lines in a file that may also hold the user's; no lines: no block, and no file if nothing else."""
    old = os.fsdecode(file.read_bytes()) if file.is_file() else ""
    theirs = _BLOCK.sub("", old)
    ours = "\n".join((_BEGIN, *lines, _END)) + "\n" if lines else ""
    new = theirs + ("\n" if theirs and not theirs.endswith("\n") else "") + ours
    if new and new != old:
        files.write(file, os.fsencode(new))
    elif not new and file.is_file():
        file.unlink()
