"""An audio file → the samples that a model takes: decode, one channel, the model's rate, normalise.

Beside model.py in the server; needs numpy and libsndfile, which is in ``vendor/``: it reads WAV, FLAC, OGG,
MP3 and AIFF. ``preprocess.json`` holds the settings. Normalised as by transformers' Wav2Vec2FeatureExtractor,
resampled as by ``torchaudio.functional.resample`` with its defaults: a sinc under a Hann window.
"""

import base64
import ctypes
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

READ = 0x10
"""SFM_READ of sndfile.h."""
WIDTH, ROLLOFF = 6, 0.99
"""Of the filter: zero crossings on each side, and the share of the lower rate's band that passes."""
BLOCK = 1 << 18
"""Samples that are decoded, or made, at a time."""
FILTERS = 1 << 21
"""Taps of a rate's filters that are kept: 44.1 kHz to 16 kHz has 76,000, 44,101 Hz would have 706 million."""
RATES = 16
"""Rates whose filters are kept."""
FASTEST = 192_000
"""Frames per second of a file: memory goes by its frames."""
EPSILON = 1e-7
UNKNOWN, UNKNOWN_RIFF = 1 << 62, 0x7FFFF000
"""Frames and bytes from which on a file does not state how long it is: it was written as it was recorded."""


class BadAudio(ValueError):
    """Why these bytes cannot be used; ``reason`` is that in a word, for the metrics."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Info(ctypes.Structure):
    """SF_INFO of sndfile.h."""

    _fields_ = (
        ("frames", ctypes.c_int64),
        ("samplerate", ctypes.c_int),
        ("channels", ctypes.c_int),
        ("format", ctypes.c_int),
        ("sections", ctypes.c_int),
        ("seekable", ctypes.c_int),
    )


class Samples:
    """One model's preprocessing: ``samples(data)`` is float32 [samples]."""

    def __init__(self, settings: dict[str, Any], library: Path) -> None:
        self.rate = int(settings["sampling_rate"])
        self.normalize = bool(settings["do_normalize"])
        self.least = int(settings["least_samples"])
        self.most = float(settings["most_seconds"])
        self.library = load(library)
        self.filters: dict[int, Any] = {}
        """By the rate of a file: [new frames, taps] for as many old ones."""

    def __call__(self, data: bytes) -> Any:
        """``BadAudio`` if the bytes are not audio that can be used."""
        samples = self.resampled(*self.decoded(data))
        if len(samples) < self.least:
            raise BadAudio(
                f"is too short: {len(samples)} samples at {self.rate} Hz, the model needs {self.least}",
                "too_short",
            )
        if not np.isfinite(samples).all():
            raise BadAudio("has samples that are no numbers", "damaged")
        if self.normalize:
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + EPSILON)
        return samples.astype(np.float32)

    def decoded(self, data: bytes) -> tuple[Any, int]:
        """(float32 [frames], the mean of the channels, frames per second)."""
        if not data:
            raise BadAudio("has no bytes", "empty")
        data = closed(data)
        stated = int.from_bytes(data[4:8], "little") + 8
        if data[:4] == b"RIFF" and len(data) < stated < UNKNOWN_RIFF:
            raise BadAudio(f"is cut short: it has {len(data)} of {stated} bytes", "damaged")
        file = os.memfd_create("audio")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            os.lseek(file, 0, os.SEEK_SET)
            info = Info()
            handle = self.library.sf_open_fd(file, READ, ctypes.byref(info), 0)
            if not handle:
                if sound := from_base64(data):
                    return self.decoded(sound)
                raise BadAudio("is not a WAV, FLAC, OGG, MP3 or AIFF file", "unreadable")
            try:
                if not 0 < info.samplerate <= FASTEST:
                    problem = f"has {info.samplerate:,} samples per second, {FASTEST:,} is the most"
                    raise BadAudio(problem, "too_large")
                return self._frames(handle, info), info.samplerate
            finally:
                self.library.sf_close(handle)
        finally:
            os.close(file)

    def _frames(self, handle: Any, info: Info) -> Any:
        most = math.ceil(self.most * info.samplerate)
        blocks, read = [], 0
        block = np.empty((max(1, BLOCK // info.channels), info.channels), dtype=np.float32)
        while True:
            count = self.library.sf_readf_float(handle, block.ctypes.data, len(block))
            if count <= 0:
                break
            read += count
            if read > most:
                problem = f"is longer than {self.most:g} s (most_seconds in preprocess.json)"
                raise BadAudio(problem, "too_large")
            blocks.append(block[:count].mean(axis=1))
        if read < info.frames < UNKNOWN:
            raise BadAudio(f"is cut short: it has {read} of {info.frames} frames", "damaged")
        if not blocks:
            raise BadAudio("has no samples", "empty")
        return np.concatenate(blocks)

    def resampled(self, samples: Any, rate: int) -> Any:
        """The samples at the model's rate, ceil(length * model's rate / rate) of them."""
        if rate == self.rate:
            return samples.astype(np.float32)
        divisor = math.gcd(rate, self.rate)
        old, new = rate // divisor, self.rate // divisor
        band = min(old, new) * ROLLOFF
        width = math.ceil(WIDTH * old / band)
        padded = np.pad(samples.astype(np.float32), (width, width + old))
        made = np.empty(math.ceil(new * len(samples) / old), dtype=np.float32)
        if new * (2 * width + old) > FILTERS:
            return one_by_one(padded, made, width, old, new)
        if rate not in self.filters:
            places = np.arange(new, dtype=np.float64)[:, None] * old / new
            taps = np.arange(-width, width + old, dtype=np.float64)
            if len(self.filters) == RATES:
                del self.filters[next(iter(self.filters))]
            self.filters[rate] = filters((taps - places) * band / old) * np.float32(band / old)
        kernels = self.filters[rate]
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernels.shape[1])[::old]
        step = max(1, BLOCK // kernels.shape[1])
        for start in range(0, len(windows), step):
            part = (windows[start : start + step] @ kernels.T).reshape(-1)[: len(made) - start * new]
            made[start * new : start * new + len(part)] = part
        return made


def from_base64(data: bytes) -> bytes:
    """The file in a base64 text or data URL, as JSON carries files; empty for anything else."""
    text = data.partition(b",")[2] if data.startswith(b"data:") else data
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except ValueError:
        return b""


def closed(data: bytes) -> bytes:
    """A WAV file that was written as it was recorded, with the sizes that its header has no numbers for.

    Recorders write 0, or nearly 2 or 4 GiB, and go back when they are done; into a pipe they cannot.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return data
    place = 12
    while place + 8 <= len(data) and data[place : place + 4] != b"data":
        place += 8 + int.from_bytes(data[place + 4 : place + 8], "little") + (data[place + 4] & 1)
    whole, part = (int.from_bytes(data[at : at + 4], "little") for at in (4, place + 4))
    there = len(data) - place - 8
    if there <= 0 or 0 < part < UNKNOWN_RIFF or place < whole < UNKNOWN_RIFF:
        return data
    sizes = [size.to_bytes(4, "little") for size in (len(data) - 8, there)]
    return data[:4] + sizes[0] + data[8 : place + 4] + sizes[1] + data[place + 8 :]


def one_by_one(padded: Any, made: Any, width: int, old: int, new: int) -> Any:
    """As by the filters of a rate, for one with a filter for nearly every sample: made, used and gone."""
    band = min(old, new) * ROLLOFF
    taps = np.arange(-width, width + 2)
    step = max(1, BLOCK // len(taps))
    for start in range(0, len(made), step):
        frames = np.arange(start, min(start + step, len(made)), dtype=np.int64) * old
        first = frames // new
        weights = filters((taps - (frames % new / new)[:, None]) * band / old)
        found = padded[np.minimum(first[:, None] + taps + width, len(padded) - 1)]
        made[start : start + len(frames)] = (weights * found).sum(axis=1) * np.float32(band / old)
    return made


def filters(time: Any) -> Any:
    """A sinc under a Hann window, at these times in zero crossings; float32."""
    inside = np.clip(time, -WIDTH, WIDTH)
    return (np.sinc(inside) * np.cos(inside * math.pi / WIDTH / 2) ** 2).astype(np.float32)


def load(library: Path) -> Any:
    """libsndfile with the types of what is called."""
    made = ctypes.CDLL(str(library))
    made.sf_open_fd.restype = ctypes.c_void_p
    made.sf_open_fd.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(Info), ctypes.c_int)
    made.sf_readf_float.restype = ctypes.c_int64
    made.sf_readf_float.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    made.sf_close.argtypes = (ctypes.c_void_p,)
    return made
