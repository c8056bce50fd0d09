"""Archives of ``EXECUTION_ENV_PATH``: whether the server can unpack one and finds ``bin/activate`` in it."""

from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import posixpath
import shlex
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from triton_repo_builder.base import files

LONGEST = 2**28
"""Limit of unpacked bytes to read, about a second; conda-pack may put the script after it."""
MOST = 50_000
"""Limit of members to read; a large environment has some tens of thousands."""
ACTIVATE = "bin/activate"
_UNREAD = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\x1f\x9d")
"""Compressions that the server knows and Python's library does not: zstd, lz4, compress."""
_DAMAGED = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


class _Beginning:
    """The first bytes of a stream: an archive may unpack to any size."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.left = LONGEST

    def read(self, size: int) -> bytes:
        """The next bytes; none once the limit is reached."""
        content = self._stream.read(min(size, self.left))
        self.left -= len(content)
        return content


def fault(file: Path) -> tuple[str, str]:
    """Message of the server about an archive, and the remedy; empty if no error is detected.

    The server's libarchive reads only tar, in any compression. It does not read zip.
    """
    status = file.stat()  # Many models may have one archive.
    return _fault(file, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=64)
def _fault(file: Path, _changed: int, _size: int) -> tuple[str, str]:
    with files.opened(file) as stream:
        head = stream.read(512)
        stream.seek(0)
        if head.startswith(_UNREAD):
            return "", ""
        opened = _opened(stream, head)
        beginning = _Beginning(opened)
        count, inner = 0, ""
        try:
            for name in _names(beginning):
                count += 1
                if name == ACTIVATE or count > MOST:
                    return "", ""
                if name.endswith(f"/{ACTIVATE}"):
                    inner = name.removesuffix(f"/{ACTIVATE}")
        except _DAMAGED:
            if not count and beginning.left:
                return f"{file} is not an archive: the server cannot unpack it", ""
            return "", ""  # cut off, here or in the file
    message = (
        f"Path {file}: {ACTIVATE} does not exist. The Python environment should contain an 'activate' script."
    )
    command = f"tar -C {shlex.quote(inner)} -czf {shlex.quote(file.name)} ."
    remedy = f"pack what is in {inner}/, not the folder: {command}" if inner else ""
    return message, remedy


def _opened(stream: IO[bytes], head: bytes) -> IO[bytes]:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]
    if head.startswith(b"BZh"):
        return bz2.BZ2File(stream)
    return lzma.LZMAFile(stream) if head.startswith(b"\xfd7zXZ") else stream


def _names(stream: _Beginning) -> Iterator[str]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
        for member in archive:
            yield posixpath.normpath(member.name)
            archive.members.clear()  # tarfile keeps them all
    if not stream.left:
        raise EOFError
