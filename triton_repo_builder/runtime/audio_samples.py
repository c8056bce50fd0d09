"""An audio file → the samples that a model takes: decode, one channel, the model's rate, normalise.

Beside model.py in the server; needs numpy and libsndfile, which is in ``vendor/``: it reads WAV, FLAC, OGG,
MP3 and AIFF. ``preprocess.json`` holds the settings. Normalised as by transformers' Wav2Vec2FeatureExtractor,
resampled as by ``torchaudio.functional.resample`` with its defaults: a sinc under a Hann window.
"""

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
BLOCK = 1 << 16
"""Frames that are decoded at a time."""
EPSILON = 1e-7
UNKNOWN, UNKNOWN_RIFF = 1 << 62, 0xFFFFFF00
"""Frames and bytes from which on a file does not state how long it is: it was written as it was recorded."""


class BadAudio(ValueError):
    """Why these bytes cannot be used."""


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
        self.filters: dict[int, tuple[Any, int, int, int]] = {}
        """By the rate of a file: what ``resampled`` needs."""

    def __call__(self, data: bytes) -> Any:
        """``BadAudio`` if the bytes are not audio that can be used."""
        frames, rate = self.decoded(data)
        samples = self.resampled(frames.mean(axis=1), rate)
        if len(samples) < self.least:
            raise BadAudio(
                f"is too short: {len(samples)} samples at {self.rate} Hz, the model needs {self.least}"
            )
        if not np.isfinite(samples).all():
            raise BadAudio("has samples that are no numbers")
        if self.normalize:
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + EPSILON)
        return samples.astype(np.float32)

    def decoded(self, data: bytes) -> tuple[Any, int]:
        """(float32 [frames, channels], frames per second)."""
        if not data:
            raise BadAudio("has no bytes")
        stated = int.from_bytes(data[4:8], "little") + 8
        if data[:4] == b"RIFF" and len(data) < stated < UNKNOWN_RIFF:
            raise BadAudio(f"is cut short: it has {len(data)} of {stated} bytes")
        file = os.memfd_create("audio")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            os.lseek(file, 0, os.SEEK_SET)
            info = Info()
            handle = self.library.sf_open_fd(file, READ, ctypes.byref(info), 0)
            if not handle:
                raise BadAudio("is not a WAV, FLAC, OGG, MP3 or AIFF file")
            try:
                return self._frames(handle, info), info.samplerate
            finally:
                self.library.sf_close(handle)
        finally:
            os.close(file)

    def _frames(self, handle: Any, info: Info) -> Any:
        most = math.ceil(self.most * info.samplerate)
        blocks, read = [], 0
        while True:
            block = np.empty((BLOCK, info.channels), dtype=np.float32)
            count = self.library.sf_readf_float(handle, block.ctypes.data, BLOCK)
            if count <= 0:
                break
            read += count
            if read > most:
                raise BadAudio(f"is longer than {self.most:g} s (most_seconds in preprocess.json)")
            blocks.append(block[:count])
        if read < info.frames < UNKNOWN:
            raise BadAudio(f"is cut short: it has {read} of {info.frames} frames")
        if not blocks:
            raise BadAudio("has no samples")
        return np.concatenate(blocks)

    def resampled(self, samples: Any, rate: int) -> Any:
        """The samples at the model's rate, ceil(length * model's rate / rate) of them."""
        if rate == self.rate:
            return samples.astype(np.float32)
        if rate not in self.filters:
            self.filters[rate] = sinc(rate, self.rate)
        kernels, width, old, new = self.filters[rate]
        padded = np.concatenate([np.zeros(width), samples, np.zeros(width + old)]).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernels.shape[1])[::old]
        made = (windows @ kernels.T).reshape(-1)
        return made[: math.ceil(new * len(samples) / old)]


def sinc(rate: int, wanted: int) -> tuple[Any, int, int, int]:
    """(float32 [new, taps], half the taps, old, new): old frames become new ones, each by its own filter."""
    divisor = math.gcd(rate, wanted)
    old, new = rate // divisor, wanted // divisor
    band = min(old, new) * ROLLOFF
    width = math.ceil(WIDTH * old / band)
    taps = np.arange(-width, width + old, dtype=np.float64)[None] / old
    time = (np.arange(0, -new, -1, dtype=np.float64)[:, None] / new + taps) * band
    time = np.clip(time, -WIDTH, WIDTH)
    window = np.cos(time * math.pi / WIDTH / 2) ** 2
    kernels = np.sinc(time) * window * (band / old)
    return kernels.astype(np.float32), width, old, new


def load(library: Path) -> Any:
    """libsndfile with the types of what is called."""
    made = ctypes.CDLL(str(library))
    made.sf_open_fd.restype = ctypes.c_void_p
    made.sf_open_fd.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(Info), ctypes.c_int)
    made.sf_readf_float.restype = ctypes.c_int64
    made.sf_readf_float.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    made.sf_close.argtypes = (ctypes.c_void_p,)
    return made
