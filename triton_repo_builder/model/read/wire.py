"""The protobuf wire format, as far as walking over an ONNX file needs it.

Source: protobuf.dev/programming-guides/encoding. Only lengths are read, so a field of a gigabyte costs
nothing: through ``mmap`` its pages are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are not a protobuf message."""


class WireTruncated(WireError):
    """A field that runs past the end: what a cut-off file looks like."""


MOST = 1_000_000
"""Fields of one message: what is parsed takes hundreds of bytes for each, empty ones too."""


@dataclass(frozen=True, slots=True)
class WireField:
    """One field: ``start`` is where its tag begins, ``value`` to ``end`` its content."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def read_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The unsigned integer at ``at`` and the position after it."""
    result = shift = 0
    while True:
        if at >= end:
            raise WireTruncated("a number runs past the end")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, at
        shift += 7
        if shift > 63:
            raise WireError("a number of more than 64 bits")


def varint(number: int) -> bytes:
    """The encoding of an unsigned integer."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def fields(data: memoryview, start: int, end: int) -> Iterator[WireField]:
    """The fields of the message ``data[start:end]``."""
    at, count = start, 0
    while at < end:
        begin, count = at, count + 1
        if count > MOST:
            raise WireError(f"more than {MOST:,} fields in one message")
        tag, at = read_varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        value = at
        if wire_type == VARINT:
            _, at = read_varint(data, at, end)
        elif wire_type == FIXED64:
            at += 8
        elif wire_type == FIXED32:
            at += 4
        elif wire_type == BYTES:
            length, value = read_varint(data, at, end)
            at = value + length
        else:
            raise WireError(f"wire type {wire_type}")
        if at > end:
            raise WireTruncated(f"field {number} runs {at - end} bytes past the end")
        yield WireField(number, wire_type, begin, value, at)
