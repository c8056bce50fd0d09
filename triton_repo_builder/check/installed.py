"""Packages of an image: written by ``trb image build``, read by ``trb check``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError


def record(tag: str, requirements: Iterable[str]) -> None:
    """Remember what was installed into an image, in the cache of this machine."""
    files.write(_file(tag), "".join(f"{line}\n" for line in requirements).encode())


def requirements(tag: str) -> list[str]:
    """The packages of an image that was built on this machine. Raises USAGE for any other."""
    try:
        return files.read_text(_file(tag)).splitlines()
    except (OSError, ValueError):
        raise TrbError(
            Code.USAGE,
            f"trb image build has not built '{tag}' on this machine",
            where="--modules",
            remedy="build it, or name the file of requirements that its packages come from",
        ) from None


def _file(tag: str) -> Path:
    return transfer.cache_folder() / "images" / f"{tag.replace('/', '+')}.txt"
