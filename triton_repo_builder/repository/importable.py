"""Files that Python may import from a version's folder, whatever their origin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from triton_repo_builder.repository.model import SHARED

ENDS = frozenset({".py", ".pyc", ".so"})
CACHE = "__pycache__"
DEEPEST = 32
"""Depth to which folders are searched."""


def below(root: Path, folder: str) -> Iterator[str]:
    """Code in a version's folder, without copies of files outside of it: paths from ``root``."""
    for place, folders, names in os.walk(root / folder, followlinks=True):
        inner = Path(place).relative_to(root)
        if inner.as_posix() == folder and SHARED in folders:
            folders.remove(SHARED)
        if len(inner.parts) > DEEPEST:
            folders.clear()  # a link that leads to a folder above it
        yield from (str(inner / name) for name in sorted(names) if Path(name).suffix in ENDS)


def cached(path: str) -> bool:
    """Whether a file is Python's own cache beside a source file."""
    return CACHE in PurePosixPath(path).parts
