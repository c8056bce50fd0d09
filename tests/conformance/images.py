"""Fifty images as files: sizes, shapes, colour modes and formats. Runs in .venv-export, needs Pillow."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

_SIZES = ((32, 32), (224, 224), (2, 5), (640, 48), (48, 640), (33, 61), (300, 200), (17, 17))
_MODES = (("RGB", "JPEG"), ("RGB", "PNG"), ("L", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("CMYK", "JPEG"))
_MORE = (("L", "JPEG"), ("1", "PNG"), ("LA", "PNG"))
TURNED = 6
"""EXIF's "rotate by 90 degrees"."""


def make(count: int = 50) -> list[bytes]:
    """Smooth colours with some noise, the same bytes every time."""
    formats = (*_MODES, *_MORE)
    return [_image(n, _SIZES[n % len(_SIZES)], *formats[n % len(formats)]) for n in range(count)]


def _image(seed: int, size: tuple[int, int], mode: str, kind: str) -> bytes:
    random = np.random.default_rng(seed)
    x, y = np.meshgrid(np.linspace(0, 6, size[0]), np.linspace(0, 6, size[1]))
    phases = random.uniform(0, 6, size=(3, 1, 1))
    waves = np.stack([np.sin(x * (n + 1) + p) + np.cos(y + p) for n, p in enumerate(phases)], axis=-1)
    pixels = np.clip(128 + 60 * waves + random.normal(0, 12, waves.shape), 0, 255).astype(np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    options = {}
    if kind == "JPEG" and seed % 4 == 3:
        exif = Image.Exif()
        exif[0x0112] = TURNED
        options["exif"] = exif
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()
