"""``model.tar.gz``: a repository as one archive, the same bytes on every machine.

The gzip stream has stored blocks, without compression: another zlib would give other bytes, and weights
hardly shrink. Format: https://www.rfc-editor.org/rfc/rfc1952 and https://www.rfc-editor.org/rfc/rfc1951#page-11
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from triton_repo_builder.ship.rendered import Stream
from triton_repo_builder.ship.stores import oci_layers
from triton_repo_builder.ship.stores.revision import LocalRevision

HEADER = bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255])
"""Deflate; no name and no time; of an unknown system."""
BLOCK = 0xFFFF
"""Bytes of a stored block at most."""


def archive(local: LocalRevision) -> Stream:
    """The files at the root of a tar, sorted by path; no folder is empty (``revision.collect``)."""
    files = tuple(local.files[path] for path in sorted(local.files))
    return Stream.of(lambda: gzip(oci_layers.stream(files, root="")))


def gzip(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """A gzip stream that holds these bytes as they are."""
    yield HEADER
    checksum, size = 0, 0
    for block in blocks:
        checksum = zlib.crc32(block, checksum)
        size += len(block)
        for start in range(0, len(block), BLOCK):
            yield _stored(block[start : start + BLOCK], last=False)
    yield _stored(b"", last=True)
    yield struct.pack("<II", checksum, size & 0xFFFFFFFF)


def _stored(content: bytes, *, last: bool) -> bytes:
    return struct.pack("<BHH", last, len(content), len(content) ^ 0xFFFF) + content
