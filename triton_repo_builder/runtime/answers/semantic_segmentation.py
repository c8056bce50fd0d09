"""Scores of coarse places → the label of each pixel of the user's own image, as a PNG file in base64.

``answer.py`` beside ``model.py``. Parameter: ``labels`` (JSON, by number). Needs only numpy. The rule is
``post_process_semantic_segmentation`` of transformers' image processors: bilinear interpolation to the size
of the image, half-pixel centers, then the label with the highest score.
"""

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

BAND = 1 << 20
"""Pixels of the image that are worked on at the same time."""
CHUNK = 1 << 22
"""Numbers that are interpolated at the same time."""


class Answer:
    """trb_scores [labels, rows, columns], image_size [2] → label_map, labels, label_ids, shares."""

    def __init__(self, parameters: dict[str, str], folder: Path) -> None:
        """The names of the labels."""
        self.labels = [text.encode() for text in json.loads(parameters["labels"])]

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """One image's labels, those of the largest areas first."""
        height, width = (int(size) for size in row["image_size"])
        counts = np.zeros(len(self.labels), dtype=np.int64)
        file = Png(height, width, len(self.labels))
        for band in bands(row["trb_scores"], height, width):
            counts += np.bincount(band.ravel(), minlength=len(counts))
            file.add(band)
        order = [number for number in np.argsort(-counts, kind="stable") if counts[number]]
        return {
            "label_map": [base64.b64encode(file.end())],
            "labels": [self.labels[number] for number in order],
            "label_ids": order,
            "shares": counts[order] / (height * width),
        }


def bands(scores: Any, height: int, width: int) -> Any:
    """Label of each pixel, some rows of [height, width] at a time.

    Between four places that have the same best label there is no other one, as weights are never below 0:
    only the pixels where labels meet are interpolated.
    """
    count, rows, columns = scores.shape
    kind = np.uint8 if count <= 256 else np.uint16
    best = scores.argmax(axis=0).astype(kind)
    by_place = np.ascontiguousarray(scores.reshape(count, -1).T, dtype=np.float32)
    left, right, across = between(columns, width)
    above, below, down = between(rows, height)
    step = max(1, BAND // width)
    for start in range(0, height, step):
        part = slice(start, start + step)
        top, bottom = best[above[part]], best[below[part]]
        labels = top[:, left]
        same = (labels == top[:, right]) & (labels == bottom[:, left]) & (labels == bottom[:, right])
        row, column = np.nonzero(~same)
        chunk = max(1, CHUNK // count)
        for at in range(0, len(row), chunk):
            r, c = row[at : at + chunk], column[at : at + chunk]
            over, under = above[part][r] * columns, below[part][r] * columns
            x, y = across[c][:, None], down[part][r][:, None]
            upper = by_place[over + left[c]] * (1 - x) + by_place[over + right[c]] * x
            lower = by_place[under + left[c]] * (1 - x) + by_place[under + right[c]] * x
            labels[r, c] = (upper * (1 - y) + lower * y).argmax(axis=1)
        yield labels


def between(places: int, pixels: int) -> Any:
    """For each pixel along an axis: the places before and after it, and the weight of the second."""
    at = np.maximum((np.arange(pixels, dtype=np.float32) + 0.5) * np.float32(places / pixels) - 0.5, 0)
    before = np.minimum(at.astype(np.int64), places - 1)
    weight = np.clip(at - before, 0, 1).astype(np.float32)
    return before, np.minimum(before + 1, places - 1), weight


class Png:
    """A PNG file, row by row: label numbers are palette indices, or grey of 16 bits beyond 256 labels.

    Source: w3.org/TR/png-3, and the colours of PASCAL VOC's label maps.
    """

    def __init__(self, height: int, width: int, labels: int) -> None:
        """Its beginning."""
        self.deep = labels > 256
        depth, colour = (16, 0) if self.deep else (8, 3)
        head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
        self.parts = [b"\x89PNG\r\n\x1a\n", block(b"IHDR", head)]
        if not self.deep:
            self.parts.append(block(b"PLTE", b"".join(colour_of(number) for number in range(labels))))
        self.packer = zlib.compressobj()
        self.packed: list[bytes] = []

    def add(self, labels: Any) -> None:
        """The next rows."""
        raw = labels.astype(">u2" if self.deep else np.uint8).tobytes()
        data = np.frombuffer(raw, dtype=np.uint8).reshape(len(labels), -1)
        unfiltered = np.zeros((len(labels), 1), dtype=np.uint8)
        self.packed.append(self.packer.compress(np.hstack([unfiltered, data]).tobytes()))

    def end(self) -> bytes:
        """The whole file."""
        content = b"".join([*self.packed, self.packer.flush()])
        return b"".join([*self.parts, block(b"IDAT", content), block(b"IEND", b"")])


def block(kind: bytes, data: bytes) -> bytes:
    """Length, kind, data and checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def colour_of(number: int) -> bytes:
    """Red, green and blue: the bits of the number, spread over the three from the highest on."""
    return bytes(
        sum(((number >> (3 * bit + channel)) & 1) << (7 - bit) for bit in range(8)) for channel in range(3)
    )
