"""Where the files of a repository are stored: in git, in git LFS, or outside (``trb fetch``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.repository import CASES, Manifest, Repository, manifest
from triton_repo_builder.repository.manifest import FileRecord
from triton_repo_builder.ship.options import LARGE
from triton_repo_builder.ship.stores import external_weights
from triton_repo_builder.ship.vcs.git import Git, need_lfs

LFS = "lfs"
GIT = "git"
EXTERNAL = "external"
ATTRIBUTES = ".gitattributes"
IGNORE = ".gitignore"
_READ = frozenset({repository.MANIFEST, repository.CONFIG, CASES, ATTRIBUTES, IGNORE, ".gitkeep"})
"""Files that describe a repository to trb or Triton: in git, however large."""
_TEXT = (".pbtxt", ".json", ".txt", ".py", ".md", ".toml", ".yaml", ".yml")
"""Suffixes of labels, code and descriptions: also in git, unless they have ``LARGE`` bytes or more."""
_BEGIN, _END = "# written by trb commit: do not edit", "# end of what trb commit wrote"
_BLOCK = re.compile(rf"^{_BEGIN}\r?$.*?^{_END}\r?$\n?", re.MULTILINE | re.DOTALL)


def prepare(
    repo: Repository, git: Git, weights: str | None, threshold: int, url: str
) -> tuple[tuple[str, ...], list[str]]:
    """Write ``.gitattributes``, ``.gitignore`` and the manifest's URLs; returns the large files, and notes.

    ``weights`` None: external files stay external, other large ones go to LFS. Raises ``TrbError``.
    """
    root, notes = repo.path, list[str]()
    records = dict(repo.manifest.files) if repo.manifest else {}
    for name, record in records.items():
        if record.url and (root / name).is_file() and _stays(root, name):
            records[name] = replace(record, url="")
    outside = {name for name, record in records.items() if record.url}
    large = [
        name
        for name in walk(root)
        if name in outside or ((root / name).lstat().st_size >= threshold and not (root / name).is_symlink())
    ]
    kept = [name for name in large if name not in outside and _stays(root, name)]
    large = [name for name in large if name not in kept]
    if kept and weights != GIT:
        notes.append(_kept(kept, weights))
    external = [name for name in large if weights == EXTERNAL or (weights is None and name in outside)]
    external += sorted(outside - set(large)) if weights is None else []
    if weights == EXTERNAL:
        notes += _store(root, records, external, url)
    elif weights is not None:
        for name in outside:
            records[name] = replace(records[name], url="")
    if repo.manifest is not None and records != repo.manifest.files:
        manifest.write(root, replace(repo.manifest, files=records))
    lfs = [name for name in large if name not in external] if weights != GIT else []
    lines = ["* -text"]  # a checksum is of bytes: no checkout may change line ends
    yours = _by_users_rules(root, git, set(lfs), lines) - set(external)
    stay = {name for name in yours if weights == GIT or _stays(root, name)}
    lfs = sorted({*lfs, *(yours - stay)})
    if stay:
        notes.append(f"{_kept(sorted(stay), weights)} (a rule of yours has them in git LFS)")
    lines += [f"{in_attributes(name)} !filter !diff !merge -text" for name in sorted(stay)]
    # Those of the user's rules as well: the rules may be in no commit, and then a clone has only pointers.
    lines += [f"{in_attributes(name)} filter=lfs diff=lfs merge=lfs -text" for name in lfs]
    write_block(root / ATTRIBUTES, lines)
    write_block(root / IGNORE, [in_ignore(name) for name in external])
    if lfs:
        need_lfs(git)
        notes += _install(git)
        if elsewhere := sorted(set(lfs) - _in_lfs(root, git)):  # nearer to the file, or in git's own folder
            notes.append(
                f"in git itself, for a rule of yours that is stronger has it so: {some(elsewhere, 4)}"
            )
            lfs = [name for name in lfs if name not in elsewhere]
    return tuple(sorted({*lfs, *external})), notes


def _stays(root: Path, name: str) -> bool:
    """Whether a file is in git itself whatever the threshold."""
    path = Path(name)
    text = path.suffix in _TEXT or path.parent.suffix == ".dist-info"
    return path.name in _READ or (text and (root / name).stat().st_size < LARGE)


def _kept(names: list[str], weights: str | None) -> str:
    why = "as --weights git asks" if weights == GIT else "for trb or Triton reads the repository by them"
    return f"kept in git itself, {why}: {some(names, 4)}"


def _by_users_rules(root: Path, git: Git, lfs: set[str], lines: list[str]) -> set[str]:
    """Files that the user's own attributes, in any file, put in git LFS: of ``lfs`` or others."""
    in_lfs = _in_lfs(root, git)
    attributes = root / ATTRIBUTES
    if in_lfs - lfs or (_has_block(attributes) and b"!filter" in files.read(attributes)):
        # Attributes that trb wrote for an earlier commit also select or exclude these files.
        write_block(attributes, lines)
        in_lfs = _in_lfs(root, git)
    return in_lfs


def _in_lfs(root: Path, git: Git) -> set[str]:
    names = [name for name in walk(root) if not (root / name).is_symlink()]
    paths = "".join(f"{name}\0" for name in names)
    words = replace(git, folder=root)("check-attr", "-z", "--stdin", "filter", stdin=paths).split("\0")
    return {name for name, value in zip(words[::3], words[2::3], strict=False) if value == LFS}


def walk(root: Path) -> Iterator[str]:
    """Sorted paths of all files and links below ``root``, without those that are not part of a repository."""
    for folder, names, filenames in os.walk(root):
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        names[:] = sorted(name for name in names if name not in links and not files.is_foreign(name))
        for name in sorted((*filenames, *links)):
            if not files.is_foreign(name):
                yield (Path(folder) / name).relative_to(root).as_posix()


def refuse_nested(root: Path) -> None:
    """Raise GIT_REFUSED for a git repository inside: git commits its name alone, and none of its files."""
    for folder, names, filenames in os.walk(root):
        if Path(folder) != root and ".git" in (*names, *filenames):
            nested = Path(folder) / ".git"
            raise TrbError(
                Code.GIT_REFUSED,
                "a git repository inside the model repository: git would leave out every file of that "
                "folder; nothing was committed",
                where=str(nested),
                remedy=f"move {nested} to another place, or remove it, then commit again",
            )
        names[:] = [name for name in names if not files.is_foreign(name)]


def committed(path: Path, git: Git, prefix: str) -> list[str]:
    """Paths of the files to commit: trb's, even if git ignores them, and those it does not ignore.

    External files stay out.
    """
    records = (repository.read_manifest(path) or Manifest()).files
    trb_files = {repository.MANIFEST, ATTRIBUTES, *records, *([IGNORE] if _has_block(path / IGNORE) else [])}
    paths = list(walk(path))
    others = "".join(f"{prefix}/{name}\0" for name in paths if name not in trb_files)
    try:
        output = git("check-ignore", "-z", "--stdin", stdin=others) if others else ""
    except process.ProcessFailed as error:
        if error.code != 1:  # 1: none is ignored
            raise
        output = ""
    ignored = {name.removeprefix(f"{prefix}/") for name in output.split("\0")}
    return [name for name in paths if name not in ignored and not _url(records, name)]


def _store(root: Path, records: dict[str, FileRecord], names: list[str], url: str) -> list[str]:
    if not url and all(_url(records, name) for name in names):
        return []  # they are external already
    if not url:
        raise TrbError(
            Code.USAGE,
            "needs --weights-url",
            where="--weights external",
            remedy="name a folder or bucket: --weights-url file:///srv/weights, s3://bucket/weights, https://…",
        )
    external_weights.check(url)
    notes = []
    for name in names:
        if name not in records:
            raise TrbError(
                Code.USAGE,
                "only files that trb built can be external: the manifest has their sha256",
                where=str(root / name),
                remedy="commit it with --weights lfs or --weights git",
            )
        sha256 = files.hash_file(root / name)
        target = f"{url.rstrip('/')}/{sha256}"
        if external_weights.put(root / name, target, sha256):
            notes.append(f"copied {name} to {target}")
        records[name] = FileRecord(sha256=sha256, bytes=(root / name).stat().st_size, url=target)
    return notes


def _url(records: Mapping[str, FileRecord], name: str) -> str:
    return records[name].url if name in records else ""


def _install(git: Git) -> list[str]:
    """Install the filters and hooks with which the user's own git reads and pushes LFS files; notes."""
    hook = git.path("hooks/pre-push")
    if hook.is_file() and "git-lfs" in files.read_text(hook, "replace"):
        return []
    try:
        git("lfs", "install", "--local")
        return ["set up git LFS in this git repository (git lfs install --local)"]
    except process.ProcessFailed:  # it writes no hook if the user has one
        git("lfs", "install", "--local", "--skip-repo")
        return [
            "you have hooks of your own, so git-lfs added none: see 'git lfs update --manual', or before "
            "'git push' run 'git lfs push REMOTE BRANCH' (trb commit --push does)"
        ]


def in_attributes(name: str) -> str:
    """A path as a pattern of .gitattributes, which matches this path alone.

    A pattern ends at the first blank, unless it is quoted as in C.
    """
    pattern = _anchored(name)
    if not re.search(r"[\x00-\x20\x7f]", pattern):
        return pattern
    quoted = re.sub(r'[\\"]', r"\\\g<0>", pattern)
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda char: f"\\{ord(char[0]):03o}", quoted) + '"'


def in_ignore(name: str) -> str:
    """A path as a pattern of .gitignore, which matches this path alone.

    It has no quotes: blanks at the end need a backslash each, and a line's end is a wildcard.
    """
    pattern = re.sub(r" +\Z", lambda blanks: r"\ " * len(blanks[0]), _anchored(name))
    return re.sub(r"\n|\r\Z", "?", pattern)


def _anchored(name: str) -> str:
    """The path from the file's folder, so that it does not begin with ``!`` or ``#``; wildcards escaped."""
    return "/" + re.sub(r"[\\*?\[\]]", r"\\\g<0>", name)


def _has_block(file: Path) -> bool:
    return file.is_file() and _BLOCK.search(os.fsdecode(files.read(file))) is not None


def write_block(file: Path, lines: list[str]) -> None:
    """Replace trb's lines in a file that may also have the user's; without any lines the file goes.

    Only one commit at a time writes it, so leftovers of a killed one are removed as well.
    """
    for unfinished in files.unfinished(file):
        unfinished.unlink(missing_ok=True)
    old = os.fsdecode(files.read(file)) if file.is_file() else ""
    rest = _BLOCK.sub("", old)
    block = "\n".join((_BEGIN, *lines, _END)) + "\n" if lines else ""
    new = rest + ("\n" if rest and not rest.endswith("\n") else "") + block
    if new and new != old:
        files.write(file, os.fsencode(new))
    elif not new and file.is_file():
        file.unlink()
