"""Files of private keys: refused if another user of this machine could read or change them."""

from __future__ import annotations

import os
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError


def read(path: Path, most: int) -> tuple[bytes, str]:
    """The first ``most`` bytes, and how others can get at them; empty if nobody can. Raises ``OSError``."""
    with path.open("rb") as stream:
        # Of the open file: its name may mean another one by now.
        return stream.read(most), _exposure(os.fstat(stream.fileno()))


def refused(path: Path, exposure: str, code: Code) -> TrbError:
    """The error for a key that others can read or change."""
    return TrbError(
        code,
        exposure,
        where=str(path),
        remedy=f"keep it to yourself: chmod 600 {path} (as its owner); and take a new key if others had it",
    )


def _exposure(facts: os.stat_result) -> str:
    if facts.st_mode & 0o077:
        return f"other users may read or change this key (mode {facts.st_mode & 0o777:o})"
    if facts.st_uid not in (0, os.geteuid()):
        return f"this key belongs to another user (uid {facts.st_uid})"
    return ""
