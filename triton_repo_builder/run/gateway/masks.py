"""The mask of each label, from the label map of a segmentation endpoint: PNG files of grey values.

The map is the PNG file that endpoints of trb write: a number for each pixel, rows without filters
(``runtime/answers/semantic_segmentation.py``).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.runtime.answers.semantic_segmentation import block

SIGNATURE = b"\x89PNG\r\n\x1a\n"
KINDS = {(8, 3): ">u1", (8, 0): ">u1", (16, 0): ">u2"}
"""Bits and colour type → numbers of pixels."""
LEVEL = 1
"""zlib's fastest: masks are large areas of one value."""


def masks(label_map: bytes, ids: list[int]) -> list[str]:
    """A PNG file in base64 for each id, white where the map has it. Raises ``Refusal`` 502."""
    try:
        numbers = _pixels(base64.b64decode(label_map, validate=True))
    except (ValueError, KeyError, struct.error, zlib.error):
        raise Refusal(502, "the endpoint's label map is not one that trb writes", code="backend") from None
    return [base64.b64encode(_file(numbers == id)).decode() for id in ids]


def _pixels(file: bytes) -> Array:
    if not file.startswith(SIGNATURE):
        raise ValueError("no PNG file")
    blocks = list(_blocks(file))
    width, height, depth, colour = struct.unpack(">IIBB", dict(blocks)[b"IHDR"][:10])
    dtype = np.dtype(KINDS[depth, colour])
    data = zlib.decompress(b"".join(data for kind, data in blocks if kind == b"IDAT"))
    lines = np.frombuffer(data, dtype=np.uint8).reshape(height, 1 + width * dtype.itemsize)
    if lines[:, 0].any():
        raise ValueError("filtered rows")
    pixels: Array = np.ascontiguousarray(lines[:, 1:]).view(dtype)
    return pixels


def _blocks(file: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(file):
        size, kind = struct.unpack(">I4s", file[at : at + 8])
        yield kind, file[at + 8 : at + 8 + size]
        at += 12 + size


def _file(inside: Array) -> bytes:
    """The mask as a PNG file of 8-bit grey."""
    height, width = inside.shape
    lines = np.zeros((height, 1 + width), dtype=np.uint8)
    lines[:, 1:] = inside * np.uint8(255)
    return b"".join(
        [
            SIGNATURE,
            block(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
            block(b"IDAT", zlib.compress(lines.tobytes(), LEVEL)),
            block(b"IEND", b""),
        ]
    )
