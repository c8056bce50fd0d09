"""Contents that git would commit, read back from git and compared with the manifest.

A filter, a line-end setting or a hook of the user may have changed a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Manifest
from triton_repo_builder.ship.vcs import large_files, tree
from triton_repo_builder.ship.vcs.git import Git

_REWRITING = ("filter", "text", "eol", "ident", "working-tree-encoding")
"""Attributes with which git stores other bytes than the file has."""


@dataclass(frozen=True, kw_only=True)
class ReadBack:
    """The repository's own files in an index."""

    wrong: Mapping[str, str]
    """Cause, by the path in the repository, for each file that is not as recorded."""
    tree: str
    """A git tree of the files that are as recorded."""


def read(git: Git, path: Path, prefix: str, scratch: Path) -> ReadBack:
    """Compare the index of ``git`` with the manifest of the repository at ``path``.

    Files outside git are left out: they were read where they are stored.
    """
    expected = _expected(path)
    entries = _entries(git, prefix)
    digests = tree.digests(git, {entries[name].oid for name in expected if name in entries}, scratch / "oids")
    wrong = {
        name: _cause(git, path, prefix, name, sha256, in_git=name in entries)
        for name, sha256 in sorted(expected.items())
        if name not in entries or sha256 not in digests[entries[name].oid]
    }
    alone = replace(git, variables={**git.variables, "GIT_INDEX_FILE": str(scratch / "own")})
    lines = "".join(f"{entries[name].line}\0" for name in sorted(expected) if name not in wrong)
    alone("read-tree", "--empty")
    alone("update-index", "-z", "--index-info", stdin=lines)
    return ReadBack(wrong=wrong, tree=alone("write-tree").strip())


def refuse(committed: ReadBack, path: Path) -> None:
    """Raise GIT_REFUSED if a file is not as recorded."""
    if not committed.wrong:
        return
    name, cause = next(iter(committed.wrong.items()))
    others = f" (and {len(committed.wrong) - 1} more)" if len(committed.wrong) > 1 else ""
    raise TrbError(
        Code.GIT_REFUSED,
        f"the commit would not have the file as the manifest records it: {cause}{others}; nothing was "
        "committed",
        where=str(path / name),
        remedy="correct the cause and commit again, or commit anyway with --force",
    )


def changed_by_hook(git: Git, tree: str, commit: str) -> list[str]:
    """Paths, from the top of the work tree, of ``tree`` that are other files in the commit, or none."""
    command = ("diff-tree", "-r", "-z", "--no-renames", "--diff-filter=MDT", "--name-only", tree, commit)
    return git(*command).split("\0")[:-1]


@dataclass(frozen=True)
class _Entry:
    oid: str
    line: str
    """Input line of ``git update-index --index-info``."""


def _expected(path: Path) -> dict[str, str]:
    """sha256 by path; for trb's own files that no manifest records, their current one."""
    manifest = repository.read_manifest(path)
    names = [large_files.ATTRIBUTES] if manifest is None else [large_files.ATTRIBUTES, repository.MANIFEST]
    digests = {name: files.hash_file(path / name) for name in names}
    return digests | {
        name: record.sha256 for name, record in (manifest or Manifest()).files.items() if not record.url
    }


def _entries(git: Git, prefix: str) -> dict[str, _Entry]:
    output = git("--literal-pathspecs", "ls-files", "--stage", "-z", "--full-name", "--", prefix)
    entries = {}
    for line in output.split("\0")[:-1]:
        facts, name = line.split("\t", 1)
        inside = name if prefix == "." else name.removeprefix(f"{prefix}/")
        entries[inside] = _Entry(facts.split()[1], line)
    return entries


def _cause(git: Git, path: Path, prefix: str, name: str, sha256: str, *, in_git: bool) -> str:
    file = path / name
    if not file.is_file():
        return "it is missing"
    if file.is_symlink():
        return "it is a symbolic link, and git keeps links, not what they lead to"
    if files.hash_file(file) != sha256:
        return "it was changed since trb wrote it"
    if not in_git:
        return "git does not take it"
    settings = ", ".join(_settings(git, name if prefix == "." else f"{prefix}/{name}"))
    return f"git changes it ({settings or 'a filter, or core.autocrlf'}; see git check-attr -a)"


def _settings(git: Git, name: str) -> Iterator[str]:
    words = git("check-attr", "-z", *_REWRITING, "--", name).split("\0")
    for attribute, value in zip(words[1::3], words[2::3], strict=False):
        if value not in ("unspecified", "unset"):
            yield f"{attribute}={value}" if value != "set" else attribute
