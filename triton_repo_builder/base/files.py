"""The one door to files that others may have written or may watch: bounded reads, digests, atomic writes.

A repository, a model folder or a state folder may hold anything under any name. Reading opens regular files
only, up to a maximum; writing makes a new file under a random name and renames it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import IO, Any

from triton_repo_builder.base.errors import Code, TrbError

LARGEST = 512 << 20
"""Bytes of a file that is read into memory: documents, tokenizers, warm-up data; weights never are."""
LARGEST_DOCUMENT = 16 << 20
"""Bytes of a JSON document of settings, which takes fifty times as much memory once it is parsed."""
LARGEST_TOML = 256 << 10
"""Bytes of a trb.toml or a file of policies."""
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file, copy on write
_CHUNK = 1 << 20
_FOREIGN = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".DS_Store"})
_UNFINISHED = re.compile(r"\.trb-.+|\..+\.trb(-.+)?")
"""Names that ``write``, ``transfer.receive`` and the staging folders give."""


class Checksum:
    """The sha256 of a large file, computed once and beside other work."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = ""
        self._error: OSError | None = None
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            self._digest = hash_file(self._path)
        except OSError as error:
            self._error = error

    def __str__(self) -> str:
        """Hex digest, waiting for it; raises ``OSError`` if the file cannot be read."""
        self._reader.join()
        if self._error:
            raise self._error
        return self._digest


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the repository: its path there, and its content or the file it is a copy of."""

    path: str
    content: bytes = b""
    source: Path | None = None
    checksum: Checksum | None = field(default=None, compare=False, repr=False)
    """The checksum of ``source``, if already being computed."""

    def sha256(self) -> str:
        """Hex digest of the content, computed once."""
        return str(self.checksum) if self.checksum else self._digest

    @cached_property
    def _digest(self) -> str:
        return hash_file(self.source) if self.source else hashlib.sha256(self.content).hexdigest()

    def size(self) -> int:
        """Bytes."""
        return self.source.stat().st_size if self.source else len(self.content)


def opened(path: Path) -> IO[bytes]:
    """Open a regular file for reading; raise ``OSError`` for anything else, at once.

    Opening a FIFO would wait for its writer, and a device may never end.
    """
    held = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(held).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file (a device, pipe or socket)", str(path))
        return os.fdopen(held, "rb")
    except BaseException:
        os.close(held)
        raise


def read(path: Path, limit: int = LARGEST) -> bytes:
    """Content of a regular file of at most ``limit`` bytes; raises ``OSError`` for any other."""
    with opened(path) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than the {limit:,} bytes that trb reads of it", str(path))
    return content


def read_text(path: Path, errors: str = "strict", limit: int = LARGEST) -> str:
    """Text of a regular UTF-8 file, each line end as ``\\n``. Raises ``OSError``, ``UnicodeDecodeError``."""
    return read(path, limit).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def hash_file(path: Path) -> str:
    """Hex sha256 of a regular file, read once in pieces."""
    digest = hashlib.sha256()
    with opened(path) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def put(file: File, root: Path) -> None:
    """Write one file under ``root``; a copy shares the source's blocks or inode if possible."""
    target = root / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        # Writing on would go through a hard link into the user's own file.
        raise AssertionError(f"two files are called {file.path}")
    if file.source is None:
        create(target, file.content)
        return
    source = file.source.resolve()
    if _reflink(source, target):
        return
    if source.stat().st_mode & stat.S_IROTH:
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    # A link would keep the mode, and a server under another user could not read the file.
    shutil.copyfile(source, target)


def write(file: Path, content: bytes, *, private: bool = False, replace: bool = True) -> None:
    """Replace one file, whole or not at all; file system errors become ``TrbError``.

    A link of that name is replaced, not followed. ``private``: only this user may read the file. Without
    ``replace`` a file that is already there stays as it is.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content, mode=0o600 if private else 0o666, replace=replace)
    except OSError as error:
        raise explain(error, file.parent) from error


def write_whole(file: Path, content: bytes, *, mode: int = 0o666, replace: bool = True) -> None:
    """``write`` into a folder that exists; raises ``OSError``."""
    fresh = file.with_name(f".{file.name}.trb-{secrets.token_hex(8)}")
    try:
        create(fresh, content, mode)
        sync(fresh)
        if replace:
            fresh.replace(file)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(fresh, file)
            fresh.unlink()
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def create(file: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a new file; raises ``FileExistsError`` if the name is taken, by a link too."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, mode), "wb") as sink:
        sink.write(content)


def unfinished(file: Path) -> list[Path]:
    """Files of processes that were killed while ``write`` replaced ``file``."""
    start = f".{file.name}.trb-"
    try:
        return sorted(path for path in file.parent.iterdir() if path.name.startswith(start))
    except OSError:  # no such folder
        return []


def is_foreign(name: str) -> bool:
    """Whether a file of this name is not part of a repository: a cache, or left by a trb that was killed."""
    return name in _FOREIGN or _UNFINISHED.fullmatch(name) is not None


def sync(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's entries: a rename may reach it before them."""
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(held)


def sync_all(folder: Path) -> None:
    """``sync`` every file and folder below ``folder``, and itself."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            file = Path(place, name)
            if file.is_file() and not file.is_symlink():
                sync(file)
        sync(Path(place))


def keep(file: Path, target: Path) -> None:
    """Copy a file of the user's unchanged: mode, times, symbolic links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, target, follow_symlinks=False)


def _reflink(source: Path, target: Path) -> bool:
    try:
        import fcntl
    except ModuleNotFoundError:  # not on this platform
        return False
    with source.open("rb") as origin, target.open("xb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, origin.fileno())
            return True
        except OSError:
            pass
    target.unlink()
    return False


def explain(
    error: OSError, output: Path, *, how: str = "", kept: str = "the repository is unchanged"
) -> TrbError:
    """The error for a failed write, which has changed nothing. ``how`` the user chooses another place."""
    error = _single(error)
    if is_full(error):
        return TrbError(
            Code.DISK_FULL,
            f"the disk is full; {kept}",
            where=str(output),
            remedy="free some space" + (f", or choose another disk {how}" if how else " there"),
        )
    return TrbError(
        Code.OUTPUT_NOT_WRITABLE,
        f"cannot be written: {error.strerror or error}",
        where=str(error.filename or output),
        remedy=f"choose a folder that you may write to {how}, or change its permissions"
        if how
        else "change its permissions, or run trb as a user who may write there",
    )


def is_full(error: OSError) -> bool:
    """Whether a file system has no space left, or none for this user."""
    return _single(error).errno in (errno.ENOSPC, errno.EDQUOT)


def _single(error: OSError) -> OSError:
    """The first failure of a copied folder: ``shutil`` collects them, as text, in an error without number."""
    if isinstance(error, shutil.Error) and (number := re.search(r"\[Errno (\d+)\]", str(error))):
        return OSError(int(number[1]), os.strerror(int(number[1])))
    return error


LFS_POINTER_SIZE = 1024
"""Bytes that a pointer of git-LFS has at most, by its specification."""
_LFS_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)
LFS_POINTER = b"version https://git-lfs.github.com/spec"


def is_lfs_pointer(start: bytes) -> bool:
    """Whether a file that begins with these bytes is a pointer of git-LFS, not the file itself."""
    return start.startswith(LFS_POINTER)


def lfs_sha256(content: bytes) -> str:
    """The hex sha256 that a pointer of git-LFS states; empty if the content is none."""
    stated = (
        _LFS_OID.search(content) if len(content) <= LFS_POINTER_SIZE and is_lfs_pointer(content) else None
    )
    return stated[1].decode() if stated else ""


def unreadable(path: Path, error: OSError, *, code: Code = Code.NOT_FOUND) -> TrbError:
    """The error for a file at or below ``path`` that the operating system does not let us read."""
    return TrbError(
        code,
        f"cannot be read: {error.strerror or error}",
        where=str(error.filename or path),
        remedy="check the path, and that the user who runs trb may read it",
    )


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have, of thousands of letters say, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; a file that this user may not see counts as missing."""
    try:
        return path.is_dir()
    except OSError:
        return False


DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of code that reads a document of another shape than it expects."""
DEEPEST = 100
"""Levels of a JSON or TOML document; deeper nesting is meant to exhaust the stack."""
DOTS = 2 * DEEPEST
"""Dots in a line of TOML."""
BITS = 1024
"""Bits of a whole number of TOML, which may be hexadecimal: Python prints no more than 4,300 digits."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def load_json(content: str | bytes, *, halves: bool = False) -> Any:
    """Parse JSON from outside, UTF-8. Raises ValueError, also if it is nested beyond ``DEEPEST``.

    ``halves``: strings may hold half of a surrogate pair, which cannot be written as UTF-8.
    """
    text = content.decode("utf-8") if isinstance(content, bytes) else content
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {DEEPEST} levels deep") from None
    if _depth(document) > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    if not halves and _HALF.search(text):
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    return document


def _depth(document: Any) -> int:
    """Levels of lists and objects, counted up to one more than ``DEEPEST``."""
    depth, level = 0, [document]
    while depth <= DEEPEST and (level := [value for value in level if isinstance(value, (dict, list))]):
        depth += 1
        level = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
    return depth


def load_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError, also if it is nested beyond ``DEEPEST``.

    The parser keeps every beginning of a dotted key: memory grows with the square of its parts.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > DOTS:
            raise ValueError(f"line {number} has more than {DOTS} dots")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise ValueError("lists or tables are nested too deeply") from None
    if _depth(document) > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    if _bits(document) > BITS:
        raise ValueError(f"a number has more than {BITS:,} bits")
    return document


def _bits(value: Any) -> int:
    """Bits of the largest whole number in a document."""
    if isinstance(value, (dict, list)):
        return max(map(_bits, value.values() if isinstance(value, dict) else value), default=0)
    return value.bit_length() if isinstance(value, int) else 0
