"""Texts, an image and a sound that the tests send."""

from __future__ import annotations

import array
import io
import struct
import wave
import zlib

TEXTS = ["hello", "The quick brown fox jumps over the lazy dog.", "Où est la bibliothèque? naïve"]
MANY = [f"text {number} {'word ' * (number % 40)}" for number in range(1000)]
QUERY = "Where is the library?"
RATE = 16_000


def png(size: int = 48) -> bytes:
    """A colour gradient as a PNG file."""
    rows = b"".join(
        b"\0" + bytes(value for x in range(size) for value in (5 * x, 5 * y, 128)) for y in range(size)
    )
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def wav(count: int = 8_000) -> bytes:
    """Noise as a WAV file of half a second."""
    state, samples = 1, array.array("h")
    for _ in range(count):
        state = state * 1_103_515_245 + 12_345 & 0x7FFFFFFF
        samples.append((state >> 15) % 18_000 - 9_000)
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(samples.tobytes())
    return file.getvalue()
