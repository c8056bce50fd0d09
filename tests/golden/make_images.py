"""Writes the image files that golden cases are recorded with (triton_repo_builder/endpoint/golden/images/).

    .venv/bin/python tests/golden/make_images.py

They are kept in git, so that a build does not depend on the encoder of the Pillow that is installed.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FOLDER = Path(__file__).resolve().parents[2] / "triton_repo_builder" / "golden" / "images"
TURNED = 6
"""EXIF orientation: to be turned by 90 degrees."""


def scene(width: int, height: int, seed: int) -> Image.Image:
    """A slope of colours with some noise and a bright disc: nothing in it is symmetric."""
    rows, columns = np.mgrid[0:height, 0:width] / max(width, height)
    noise = np.random.default_rng(seed).integers(0, 24, (height, width, 3))
    colours = np.stack([columns * 230, rows * 230, 200 - 150 * columns * rows], axis=2) + noise
    colours[(rows - 0.2) ** 2 + (columns - 0.3) ** 2 < 0.02] = (250, 240, 90)
    return Image.fromarray(colours.clip(0, 255).astype(np.uint8))


def alpha(image: Image.Image) -> Image.Image:
    """With a slope of transparency."""
    slope = np.linspace(0, 255, image.width).astype(np.uint8)
    image.putalpha(Image.fromarray(np.tile(slope, (image.height, 1))))
    return image


def exif() -> Any:
    """An orientation and nothing else."""
    made = Image.Exif()
    made[0x0112] = TURNED
    return made


def main() -> None:
    """Write every file."""
    files: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "tiny.png": (scene(6, 5, 1), {}),
        "photo.jpg": (scene(96, 64, 2), {"quality": 80}),
        "photo.png": (scene(40, 56, 3), {"optimize": True}),
        "grey.png": (scene(48, 32, 4).convert("L"), {"optimize": True}),
        "palette.png": (scene(50, 50, 5).quantize(16), {"transparency": 3}),
        "alpha.png": (alpha(scene(36, 30, 6)), {"optimize": True}),
        "cmyk.jpg": (scene(60, 44, 7).convert("CMYK"), {"quality": 75}),
        "turned.jpg": (scene(80, 48, 8), {"quality": 80, "exif": exif()}),
        "wide.jpg": (scene(180, 18, 9), {"quality": 75}),
        "large.jpg": (scene(420, 300, 10), {"quality": 30}),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, (image, options) in files.items():
        stream = BytesIO()
        image.save(stream, "PNG" if name.endswith(".png") else "JPEG", **options)
        (FOLDER / name).write_bytes(stream.getvalue())


if __name__ == "__main__":
    main()
