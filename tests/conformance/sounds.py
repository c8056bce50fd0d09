"""Fifty sounds as WAV files of 16,000 samples per second: lengths, widths, channels."""

from __future__ import annotations

import io
import wave

import numpy as np

RATE = 16_000
_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.3, 0.31, 4.0)
"""Of six files each: only equal lengths can be rows of one request."""


def make(count: int = 50) -> list[bytes]:
    """Voices of a kind with some noise, the same bytes every time."""
    return [_sound(n, int(RATE * _SECONDS[n // 6 % len(_SECONDS)])) for n in range(count)]


def samples(file: bytes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """What Python's own ``wave`` finds, the mean of the channels."""
    with wave.open(io.BytesIO(file)) as found:
        raw, width = found.readframes(found.getnframes()), found.getsampwidth()
        channels = found.getnchannels()
    if width == 1:
        values = (np.frombuffer(raw, dtype=np.uint8).astype(np.float64) - 128) / 128
    elif width == 3:
        parts = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 3).astype(np.int64)
        whole = parts[:, 0] | (parts[:, 1] << 8) | (parts[:, 2] << 16)
        values = np.where(whole >= 1 << 23, whole - (1 << 24), whole) / (1 << 23)
    else:
        values = np.frombuffer(raw, dtype=f"<i{width}") / (1 << (8 * width - 1))
    mean: np.ndarray[tuple[int], np.dtype[np.float32]] = values.reshape(-1, channels).mean(axis=1)
    return mean.astype(np.float32)


def _sound(seed: int, count: int) -> bytes:
    random, time = np.random.default_rng(seed), np.arange(count) / RATE
    base = 80 + 12 * seed
    tones = [np.sin(2 * np.pi * base * n * time + random.uniform(0, 6)) / n for n in range(1, 9)]
    sound = sum(tones) * np.sin(np.pi * (time * 3 % 1)) ** 2 + random.normal(0, 0.02, count)
    sound = 0.6 * sound / max(np.abs(sound).max(), 1e-6)
    width, channels = (2, 2, 1, 3, 4)[seed % 5], 1 + seed % 2
    both = np.stack([sound, 0.5 * np.roll(sound, 30)][:channels], axis=1).reshape(-1)
    if width == 1:
        raw = (both * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = (both * ((1 << (8 * width - 1)) - 1)).astype("<i8")
        raw = whole.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(channels)
        made.setsampwidth(width)
        made.setframerate(RATE)
        made.writeframes(raw)
    return file.getvalue()
