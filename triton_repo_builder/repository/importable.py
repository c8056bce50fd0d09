"""Files that Python may import from a version's folder, whatever their origin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from triton_repo_builder.repository.model import SHARED

ENDS = frozenset({".py", ".pyc", ".so"})
CACHE = "__pycache__"
DEEPEST = 32
"""Folders below each other that are looked into."""


def below(root: Path, folder: str) -> Iterator[str]:
    """Code in a version's folder, but for copies of what lies outside of it: paths from ``root``."""
    for place, folders, names in os.walk(root / folder, followlinks=True):
        inner = Path(place).relative_to(root)
        if inner.as_posix() == folder and SHARED in folders:
            folders.remove(SHARED)
        if len(inner.parts) > DEEPEST:
            folders.clear()  # a link that leads to a folder above it
        yield from (str(inner / name) for name in sorted(names) if Path(name).suffix in ENDS)


def cached(path: str) -> bool:
    """Whether Python itself writes such files, beside the source that it has read."""
    return CACHE in PurePosixPath(path).parts
