"""The layers of a model image: plain tar streams that are the same bytes for the same files.

The files are under ``/models``, where KServe and Kubernetes image volumes look for them. Layers are not
compressed: another zlib would give other bytes and with them another digest, weights hardly shrink, and a
tar of a file that is already on disk can be hashed and sent without a copy of it.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File, unreadable
from triton_repo_builder.ship.stores.revision import LocalRevision, check_path

ROOT = "models"
LARGE = 1 << 20
"""A file of this many bytes has a layer of its own, so that a change elsewhere does not send it again."""
MOST = 60
"""Layers of either kind; overlay file systems mount 127 or so at most."""
BLOCK = 1 << 20
_RECORD = 512
LAYERS = 127
"""Layers of an image that is pulled."""
MEMBERS = 100_000
"""Files and folders of all layers of an image."""
HEADER = 2 << 20
"""Bytes that are read at once: the content of a file in pieces, a header whole."""
PACKED = 100
"""Limit of the ratio of all layers of an image to their blobs, if that is more than ``ANYWAY``
bytes: weights hardly shrink."""
ANYWAY = 1 << 30
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One tar stream."""

    files: tuple[File, ...]
    digest: str
    """``sha256:…`` of the stream."""
    size: int

    def blocks(self) -> Iterator[bytes]:
        """The stream, from its start."""
        return stream(self.files)


class Room:
    """Bytes and members that may still be unpacked of an image with ``stated`` bytes of layers."""

    def __init__(self, stated: int) -> None:
        self.bytes = max(ANYWAY, PACKED * stated)
        self.members = MEMBERS


class Reader:
    """A stream of blocks of known length, with the part of a file's interface that HTTP clients need."""

    def __init__(self, blocks: Iterator[bytes], size: int) -> None:
        self._blocks = blocks
        self._rest = b""
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return self._blocks

    def read(self, size: int | None = -1) -> bytes:
        """At most ``size`` bytes; nothing at the end."""
        # An empty piece is not the end: an empty file has one.
        while not self._rest and (block := next(self._blocks, None)) is not None:
            self._rest = block
        count = len(self._rest) if size is None or size < 0 else size
        data, self._rest = self._rest[:count], self._rest[count:]
        return data


class _Tape:
    """A tar stream for ``tarfile``: forward only, with limits that do not trust the archive's sizes."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream, self._most, self._furthest = stream, most, 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Raises ``tarfile.ReadError`` for too many."""
        if not 0 <= size <= HEADER:
            raise tarfile.ReadError(f"a header has more than {HEADER:,} bytes")
        data: bytes = self._stream.read(size)
        self._reached()
        return data

    def seek(self, position: int) -> int:
        """Skip forward to an offset. Raises ``tarfile.ReadError`` for one before the current one."""
        if position < self._furthest - 1:  # tarfile itself looks at the last byte again
            raise tarfile.ReadError("a header leads back")
        if position > self._most:
            raise tarfile.ReadError(f"holds more than {self._most:,} bytes")
        self._stream.seek(position)
        self._reached()
        return position

    def tell(self) -> int:
        """Bytes from the start."""
        return int(self._stream.tell())

    def _reached(self) -> None:
        self._furthest = max(self._furthest, self._stream.tell())
        if self._furthest > self._most:
            raise tarfile.ReadError(f"holds more than {self._most:,} bytes")


def unpack(layer: Path, target: Path, where: str, room: Room) -> None:
    """Write the files of a layer that are under ``models/`` below ``target``, and nothing else.

    ``room``, which the layers of an image share, shrinks by what it holds.

    Raises DIGEST_MISMATCH for a path outside, STORAGE_FAILED for what is not a plain tar stream, packed by
    gzip at most.
    """
    try:
        with layer.open("rb") as plain:
            packed = plain.read(len(_GZIP)) == _GZIP
        size = layer.stat().st_size
        with gzip.open(layer) if packed else layer.open("rb") as stream:
            tape = _Tape(stream, room.bytes if packed else min(size, room.bytes))
            _unpack(tape, target, where, room)
            room.bytes -= tape.tell()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError) as error:
        raise TrbError(
            Code.STORAGE_FAILED,
            f"is not a layer that trb can unpack: {str(error) or type(error).__name__}",
            where=where,
            remedy=transfer.UNTRUSTED,
        ) from None


def _unpack(tape: Any, target: Path, where: str, room: Room) -> None:
    with tarfile.open(fileobj=tape, mode="r:") as archive:
        for member in archive:
            room.members -= 1
            if room.members < 0:
                raise tarfile.ReadError(f"holds more than {MEMBERS:,} files, with the layers before it")
            path = member.name.removeprefix("./").removeprefix("/")
            if not member.isreg() or not path.startswith(f"{ROOT}/"):
                continue
            if member.issparse():
                raise tarfile.ReadError(f"{path[:200]!r} is a sparse file")
            path = path.removeprefix(f"{ROOT}/")
            check_path(path, where)
            stream = archive.extractfile(member)
            assert stream is not None  # It is a regular file.
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with stream, file.open("wb") as sink:
                sink.writelines(transfer.blocks(stream))


def split(local: LocalRevision) -> tuple[Layer, ...]:
    """One layer for each large file, and one for the rest of each model."""
    entries = local.index.entries
    large = sorted(entries, key=lambda entry: (-entry.bytes, entry.path))[:MOST]
    alone = {entry.path for entry in large if entry.bytes >= LARGE}
    models = sorted({_model(entry.path) for entry in entries})
    groups: dict[str, list[str]] = {}
    for entry in entries:
        if entry.path not in alone:
            model = _model(entry.path)
            groups.setdefault(model if len(models) <= MOST else "", []).append(entry.path)
    paths = [*([path] for path in sorted(alone)), *(groups[name] for name in sorted(groups))]
    return tuple(_layer([local.files[path] for path in group]) for group in paths)


def _model(path: str) -> str:
    first, slash, _ = path.partition("/")
    return first if slash else ""


def _layer(files: Sequence[File]) -> Layer:
    digest, size = hashlib.sha256(), 0
    for block in stream(files):
        digest.update(block)
        size += len(block)
    return Layer(files=tuple(files), digest=f"sha256:{digest.hexdigest()}", size=size)


def stream(files: Sequence[File], root: str = ROOT) -> Iterator[bytes]:
    """A tar of these files below ``root``: no time, no owner, the same bytes for the same files."""
    folders = {str(p) for file in files for p in PurePosixPath(root, file.path).parents if str(p) != "."}
    for folder in sorted(folders):
        yield _header(folder, 0, tarfile.DIRTYPE)
    for file in files:
        size = file.size()
        yield _header(str(PurePosixPath(root, file.path)), size, tarfile.REGTYPE)
        if file.source is None:
            yield file.content
        else:
            yield from _content(file.source)
        yield bytes(-size % _RECORD)
    yield bytes(2 * _RECORD)


def _content(file: Path) -> Iterator[bytes]:
    try:
        with files.opened(file) as stream:
            while block := stream.read(BLOCK):
                yield block
    except OSError as error:
        raise unreadable(file, error, code=Code.REPOSITORY_UNREADABLE) from None


def _header(name: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info.tobuf(tarfile.PAX_FORMAT)
