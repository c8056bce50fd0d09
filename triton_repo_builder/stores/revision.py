"""What is pushed: every file of a repository with its digest, and the one digest that stands for all of them.

The index is a canonical JSON list of the files. Its sha256 names the revision, so whoever knows the revision
can verify the index, and with it every file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import File

PLACEHOLDER = ".gitkeep"
NOT_OURS = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".DS_Store"})
"""What lies beside a repository's files and is none of them."""
REPAIR = "push the revision again: what is damaged is replaced; if it stays so, do not use this store"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file as the index lists it."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Index:
    """The files of one revision, by path."""

    entries: tuple[Entry, ...]

    @property
    def document(self) -> bytes:
        """The same bytes for the same files."""
        listed = {entry.path: {"sha256": entry.sha256, "bytes": entry.bytes} for entry in self.entries}
        text = json.dumps({"schema": 1, "files": listed}, indent=1, sort_keys=True, ensure_ascii=False)
        return f"{text}\n".encode()

    @property
    def digest(self) -> str:
        """Hex sha256 of the document: the revision."""
        return hashlib.sha256(self.document).hexdigest()

    @property
    def bytes(self) -> int:
        """Sum of all files."""
        return sum(entry.bytes for entry in self.entries)


@dataclass(frozen=True, kw_only=True)
class Content:
    """A local repository, ready to be sent."""

    index: Index
    files: Mapping[str, File]
    labels: Mapping[str, str]
    """Provenance in one line each, from manifest.json; empty for a repository that trb did not build."""


def gather(root: Path) -> Content:
    """Read a repository. An empty folder gets a placeholder: no store keeps it, and Triton needs it."""
    found: dict[str, File] = {}
    try:
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if NOT_OURS & set(relative.parts):
                continue
            if path.is_dir():
                if not any(path.iterdir()):
                    name = (relative / PLACEHOLDER).as_posix()
                    found[name] = File(path=name)
            elif path.is_file():
                found[relative.as_posix()] = File(path=relative.as_posix(), source=path)
            else:
                raise TrbError(
                    Code.REPOSITORY_UNREADABLE,
                    "is no file: a broken link, a pipe or a socket",
                    where=str(path),
                    remedy="remove it, or restore what it points to",
                )
        entries = tuple(
            Entry(path=name, sha256=file.sha256(), bytes=file.size()) for name, file in sorted(found.items())
        )
    except OSError as error:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"cannot be read: {error.strerror}",
            where=str(error.filename or root),
            remedy="make it readable for this user",
        ) from None
    return Content(index=Index(entries=entries), files=found, labels=labels(repository.read_manifest(root)))


def read_index(document: bytes, digest: str, where: str) -> Index:
    """An index that arrived; raises DIGEST_MISMATCH where it is not the one that was meant."""
    actual = hashlib.sha256(document).hexdigest()
    if actual != digest:
        raise mismatch(where, actual, digest)
    listed = json.loads(document)["files"]
    for path in listed:
        inside(path, where)
    return Index(
        entries=tuple(
            Entry(path=path, sha256=fact["sha256"], bytes=fact["bytes"]) for path, fact in listed.items()
        )
    )


def inside(path: str, where: str) -> None:
    """Refuse a path that leads out of the folder it is written to: whoever filled the store chose it."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path:
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"lists a file outside of the repository: {path!r}",
            where=where,
            remedy="do not use this store: somebody tampered with it",
        )


def labels(manifest: Mapping[str, Any] | None) -> dict[str, str]:
    """What built it from what, as flat labels."""
    if manifest is None:
        return {}
    generator = manifest.get("generator", {})
    found = {"trb.version": str(generator.get("version", ""))}
    for name, entry in sorted(manifest["endpoints"].items()):
        for source in entry.get("sources", ()):
            found[f"trb.{name}.source.{source.get('file', '')}"] = f"sha256:{source.get('sha256', '')}"
        provenance = entry.get("provenance")
        for key, value in sorted(provenance.items() if isinstance(provenance, dict) else ()):
            found[f"trb.{name}.{key}"] = (
                value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            )
    return found


def materialise(file: Path, blocks: Iterable[bytes], entry: Entry, where: str) -> None:
    """Write what arrives and compare; the file is gone again where it is not what the index says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with file.open("wb") as sink:
        for block in blocks:
            digest.update(block)
            sink.write(block)
    if digest.hexdigest() != entry.sha256:
        file.unlink()
        raise mismatch(where, digest.hexdigest(), entry.sha256)


def same_files(root: Path, index: Index) -> bool:
    """Whether a folder holds exactly this revision."""
    return root.is_dir() and gather(root).index.digest == index.digest


def mismatch(where: str, actual: str, expected: str, remedy: str = REPAIR) -> TrbError:
    """What arrived, or lies there, is something else."""
    return TrbError(
        Code.DIGEST_MISMATCH, f"has sha256 {actual}, expected {expected}", where=where, remedy=remedy
    )
