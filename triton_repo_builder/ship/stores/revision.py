"""A pushed revision: every file of a repository with its digest, and one digest over all of them.

The index is a canonical JSON list of the files. Its sha256 names the revision, so the revision is enough to
verify the index, and with it every file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base import transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, File, is_foreign, load_json, unreadable
from triton_repo_builder.repository import Manifest, walk

PLACEHOLDER = ".gitkeep"
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
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
        """The index as JSON: equal files give equal bytes."""
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
class LocalRevision:
    """A local repository, ready to be sent."""

    index: Index
    files: Mapping[str, File]
    labels: Mapping[str, str]
    """Provenance in one line each, from manifest.json; empty for a repository that trb did not build."""


def collect(root: Path) -> LocalRevision:
    """Read a repository. An empty folder gets a placeholder: no store keeps it, and Triton needs it.

    Raises REPOSITORY_UNREADABLE, also for a link that leads out: its author would choose what is sent.
    """
    files: dict[str, File] = {}
    try:
        inside = root.resolve()
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if any(map(is_foreign, relative.parts)):
                continue
            if path.is_symlink() and path.exists() and not path.resolve().is_relative_to(inside):
                raise walk.leads_out(path)
            if path.is_dir():
                if not any(path.iterdir()):
                    name = (relative / PLACEHOLDER).as_posix()
                    files[name] = File(path=name)
            elif path.is_file():
                files[relative.as_posix()] = File(path=relative.as_posix(), source=path)
            else:
                raise TrbError(
                    Code.REPOSITORY_UNREADABLE,
                    "not a regular file: a broken link, a pipe or a socket",
                    where=str(path),
                    remedy="remove it, or restore what it points to",
                )
        entries = tuple(
            Entry(path=name, sha256=file.sha256(), bytes=file.size()) for name, file in sorted(files.items())
        )
    except OSError as error:
        raise unreadable(root, error, code=Code.REPOSITORY_UNREADABLE) from None
    return LocalRevision(
        index=Index(entries=entries), files=files, labels=labels(repository.read_manifest(root))
    )


def read_index(document: bytes, digest: str, where: str) -> Index:
    """Read an index. Raises DIGEST_MISMATCH (also for a file outside), STORAGE_FAILED."""
    actual = hashlib.sha256(document).hexdigest()
    if actual != digest:
        raise mismatch(where, actual, digest)
    try:
        listed = load_json(document)["files"].items()
        entries = tuple(
            Entry(path=path, sha256=str(fact["sha256"]), bytes=stated_size(fact["bytes"]))
            for path, fact in listed
        )
    except DAMAGED as error:
        raise TrbError(
            Code.STORAGE_FAILED,
            f"is not an index of trb: {type(error).__name__} {error}",
            where=where,
            remedy=REPAIR,
        ) from None
    for entry in entries:
        check_path(entry.path, where)
    return Index(entries=entries)


def check_path(path: str, where: str) -> None:
    """Raise DIGEST_MISMATCH for a file that no push sends: outside, of git, or left by a killed trb."""
    transfer.check_inside(path, where)
    if any(map(is_foreign, path.split("/"))) or not path.isprintable():
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"lists a file that trb does not push: {path!r:.100}",
            where=where,
            remedy="do not use it: it may have been tampered with",
        )


def stated_size(value: Any) -> int:
    """Bytes as a document states them. Raises ValueError."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.40} is not a size")
    return value


def labels(manifest: Manifest | None) -> dict[str, str]:
    """Provenance as flat labels."""
    if manifest is None:
        return {}
    flat = {"trb.version": manifest.generator.get("version", "")}
    for name, entry in sorted(manifest.endpoints.items()):
        if entry.served.content:
            flat[f"trb.{name}.content"] = f"sha256:{entry.served.content}"
        for source in entry.served.sources:
            flat[f"trb.{name}.source.{source.file}"] = f"sha256:{source.sha256}"
        for key, value in sorted(entry.served.provenance.to_json().items()):
            flat[f"trb.{name}.{key}"] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return flat


def write_verified(file: Path, blocks: Iterable[bytes], entry: Entry, where: str) -> None:
    """Write one file of a revision. Raises DIGEST_MISMATCH; then it is not there."""
    actual = transfer.receive(blocks, file, entry.sha256, entry.bytes, where)
    if actual != entry.sha256:
        raise mismatch(where, actual, entry.sha256)


def mismatch(where: str, actual: str, expected: str, remedy: str = REPAIR) -> TrbError:
    """The error for bytes that differ from the recorded digest."""
    return TrbError(
        Code.DIGEST_MISMATCH, f"has sha256 {actual}, expected {expected}", where=where, remedy=remedy
    )
