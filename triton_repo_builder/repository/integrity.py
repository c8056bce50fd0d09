"""Files that are not as ``trb`` wrote them: the manifest's digests against the bytes that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder import files
from triton_repo_builder.repository.manifest import FileRecord


@dataclass(frozen=True, kw_only=True)
class Altered:
    """A recorded file with other bytes, or none."""

    path: str
    """In the repository."""
    missing: bool

    def __str__(self) -> str:
        return f"{self.path} {'is missing' if self.missing else 'was changed'}"


def altered(root: Path, records: Mapping[str, FileRecord]) -> tuple[Altered, ...]:
    """The files of ``records`` that are missing or have another sha256; every one is read."""
    found = []
    for path, record in sorted(records.items()):
        file = root / path
        missing = not file.is_file()
        if missing or file.stat().st_size != record.bytes or files.hash_file(file) != record.sha256:
            found.append(Altered(path=path, missing=missing))
    return tuple(found)


def listed(found: Sequence[Altered], most: int = 5) -> str:
    """The first ``most`` of them in one line, and how many more there are."""
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(map(str, found[:most])) + more
