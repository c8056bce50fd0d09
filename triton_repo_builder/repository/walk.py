"""Every file of a repository as a server would read it: links are followed, unreadable entries reported."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A folder or a file."""

    name: str
    """Path below the root, with ``/``."""
    path: Path
    folder: bool
    size: int
    modified: float
    """Seconds since 1970."""
    mode: int
    owner: int
    outside: bool
    """Whether a link has led out of the root."""


def walk(root: Path) -> Iterator[Entry]:
    """All entries below ``root`` in the order of their names, folders before their contents.

    Raises ``TrbError`` for a broken or circular link, and for entries that this user may not read.
    """
    root = root.resolve()
    yield from _below(root, root, "", (root,))


def _below(root: Path, folder: Path, prefix: str, above: tuple[Path, ...]) -> Iterator[Entry]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise _unreadable(folder, error) from None
    for path in paths:
        name = path.name
        try:
            real = path.resolve(strict=True)
            facts = real.stat()
        except (OSError, RuntimeError) as error:
            raise _unreadable(path, error) from None
        is_folder = stat.S_ISDIR(facts.st_mode)
        if not is_folder and not stat.S_ISREG(facts.st_mode):
            continue  # a socket or a pipe is not a file of a model
        if not os.access(real, os.R_OK | (os.X_OK if is_folder else 0)):
            raise _unreadable(path, PermissionError(13, "Permission denied"))
        yield Entry(
            name=f"{prefix}{name}",
            path=real,
            folder=is_folder,
            size=0 if is_folder else facts.st_size,
            modified=facts.st_mtime,
            mode=facts.st_mode,
            owner=facts.st_uid,
            outside=not real.is_relative_to(root),
        )
        if is_folder:
            if real in above:
                raise _unreadable(path, OSError(40, "it is a link to a folder above it"))
            yield from _below(root, real, f"{prefix}{name}/", (*above, real))


def leads_out(path: Path) -> TrbError:
    """The error for a link that would send a file of this machine with the repository."""
    return TrbError(
        Code.REPOSITORY_UNREADABLE,
        f"a link to {path.resolve()}, which is outside of the repository; nothing was sent",
        where=str(path),
        remedy="put a copy of the file in its place (cp --remove-destination), or remove the link",
    )


def _unreadable(path: Path, error: Exception) -> TrbError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if path.is_symlink():
        reason = f"a link that cannot be followed: {reason}"
    return TrbError(
        Code.REPOSITORY_UNREADABLE,
        f"cannot be read: {reason}",
        where=str(path),
        remedy="make it readable for this user, or remove it",
    )
