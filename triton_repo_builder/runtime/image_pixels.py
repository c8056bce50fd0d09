"""An image file → the numbers that a model takes: decode, RGB, resize, center crop, rescale, normalise.

Lies beside model.py in the server and is imported by it; needs numpy and Pillow. The steps and their order
are those of transformers' PIL image processors; ``preprocess.json`` holds their settings.
"""

import base64
import importlib
import io
import math
import warnings
from typing import Any

import numpy as np

# Imported by name, so that Pillow never loads its other plugins (one of them runs Ghostscript).
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageOps,
    JpegImagePlugin,
    PngImagePlugin,
    WebPImagePlugin,
)

PLUGINS = (JpegImagePlugin, PngImagePlugin, WebPImagePlugin, GifImagePlugin, BmpImagePlugin)
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
LARGEST = Image.MAX_IMAGE_PIXELS or 89_478_485
"""Pixels above which an image is refused, as it is and as it would be after resizing."""


class BadImage(ValueError):
    """Why these bytes cannot be used; ``reason`` is that in a word, for the metrics."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Pixels:
    """One model's preprocessing: ``pixels(data)`` is [3, height, width], or [height, width, 3] for NHWC."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.resize: dict[str, int] | None = settings["resize"]
        self.resample = int(settings["resample"])
        self.crop: list[int] | None = settings["crop"]
        self.table = table(settings["rescale"], settings["mean"], settings["std"])
        self.jpeg = int(settings["jpeg"])
        self.white = bool(settings["white"])
        self.flip = bool(settings["flip"])
        self.channels_last = settings["layout"] == "NHWC"
        self.letterbox: list[int] | None = settings.get("letterbox")
        self.crop_rounds = bool(settings.get("crop_rounds"))

    def __call__(self, data: bytes) -> Any:
        """float32; ``BadImage`` where the bytes are not an image that can be used."""
        return self.sized(data)[0]

    def sized(self, data: bytes) -> tuple[Any, tuple[int, int]]:
        """The same, and (rows, columns) of the image as it was."""
        image = decode(data)
        return self._pixels(image), (image.height, image.width)

    def _pixels(self, image: Any) -> Any:
        if self.white and image.info.get("transparency") is not None:
            # One colour was transparent; an alpha channel is gone by now, as in transformers.
            opaque = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(opaque, image.convert("RGBA")).convert("RGB")
        try:
            if self.resize is not None:
                image = image.resize(resized(image.size, self.resize), resample=self.resample)
        except (MemoryError, ValueError) as error:
            raise BadImage(f"cannot be resized: {error}", "too_large") from None
        if self.jpeg:
            # Some models were trained on images that had been resized and stored; they are sensitive to it.
            stored = io.BytesIO()
            image.save(stored, "JPEG", quality=self.jpeg)
            image = Image.open(stored, formats=("JPEG",))
        array = np.asarray(image)
        if self.letterbox is not None:
            # Beside this file in the server, in a package while trb builds.
            name = f"{__package__}.image_letterbox" if __package__ else "image_letterbox"
            array = importlib.import_module(name).letterbox(array, *self.letterbox)
        if self.crop is not None:
            array = center_crop(array, *self.crop, rounds=self.crop_rounds)
        pixels = np.empty((3, *array.shape[:2]), dtype=np.float32)
        for channel in range(3):
            np.take(self.table[channel], array[:, :, channel], out=pixels[channel])
        if self.flip:
            pixels = pixels[::-1]
        return np.moveaxis(pixels, 0, 2) if self.channels_last else pixels


def decode(data: bytes) -> Any:
    """The first frame in RGB, turned as its EXIF orientation says: ``load_image`` of transformers."""
    if not data:
        raise BadImage("has no bytes", "empty")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            raise BadImage(f"has more than {LARGEST:,} pixels", "too_large") from None
        except Exception as error:
            if file := from_base64(data):
                return decode(file)
            raise BadImage(f"is not a {', '.join(FORMATS)} file: {reason(error)}", "unreadable") from None
        try:
            return ImageOps.exif_transpose(image).convert("RGB")
        except Exception as error:  # decoders raise what they like on a damaged file
            raise BadImage(f"is a damaged {image.format} file: {reason(error)}", "damaged") from None


def from_base64(data: bytes) -> bytes:
    """The file in a base64 text or data URL, as JSON carries files; empty for anything else."""
    text = data.partition(b",")[2] if data.startswith(b"data:") else data
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except ValueError:
        return b""


def reason(error: BaseException) -> str:
    """Its first line, without the address of the buffer that Pillow names."""
    lines = str(error).splitlines() or [type(error).__name__]
    return "not recognised" if "BytesIO" in lines[0] else lines[0]


def resized(size: tuple[int, int], target: dict[str, int]) -> tuple[int, int]:
    """(width, height) after resizing an image of ``size``; ``BadImage`` where it would become too large."""
    width, height = size
    if "shortest_edge" not in target:
        return target["width"], target["height"]
    edge = target["shortest_edge"]
    if "longest_edge" in target:
        return within(size, edge, target["longest_edge"], target.get("multiple", 1))
    longer = int(edge * max(size) / min(size))
    if edge * longer > LARGEST:
        problem = f"is {width} x {height}: too narrow, resized it would have {edge * longer:,} pixels"
        raise BadImage(problem, "too_narrow")
    return (edge, longer) if width <= height else (longer, edge)


def within(size: tuple[int, int], shortest: int, longest: int, multiple: int) -> tuple[int, int]:
    """(width, height) as of transformers' ``get_size_with_aspect_ratio``: DETR's, with multiples YOLOS'."""
    width, height = size
    exact: float = shortest
    if max(size) / min(size) * shortest > longest:
        exact = longest * min(size) / max(size)
    edge = round(exact)
    if min(size) == edge and (multiple == 1 or width >= height):
        made = size
    else:
        longer = (
            int(exact * max(size) / min(size)) if exact != shortest else int(edge * max(size) / min(size))
        )
        made = (edge, longer) if width < height else (longer, edge)
    made = made[0] - made[0] % multiple, made[1] - made[1] % multiple
    if not all(made):
        problem = f"is {width} x {height}: too narrow, resized it would be {made[0]} x {made[1]}"
        raise BadImage(problem, "too_narrow")
    return made


def center_crop(array: Any, height: int, width: int, *, rounds: bool = False) -> Any:
    """The middle of [rows, columns, 3]; where the image is smaller, zeros around it.

    ``rounds``: half a pixel is rounded to even, as torchvision does.
    """
    rows, columns = array.shape[:2]
    top, left = (rows - height) // 2, (columns - width) // 2
    if rounds:
        top, left = round((rows - height) / 2), round((columns - width) / 2)
    if top >= 0 and left >= 0:
        return array[top : top + height, left : left + width]
    taller, wider = max(height, rows), max(width, columns)
    above, before = math.ceil((taller - rows) / 2), math.ceil((wider - columns) / 2)
    padded = np.zeros((taller, wider, 3), dtype=array.dtype)
    padded[above : above + rows, before : before + columns] = array
    top, left = top + above, left + before
    return padded[max(0, top) : top + height, max(0, left) : left + width]


def table(rescale: float | None, mean: list[float] | None, std: list[float] | None) -> Any:
    """[3, 256]: what each channel's 0 to 255 becomes, in the steps and precisions of transformers."""
    values = np.arange(256)
    scaled = (
        values.astype(np.float32) if rescale is None else (values * np.float64(rescale)).astype(np.float32)
    )
    rows = np.stack([scaled] * 3)
    if mean is None or std is None:
        return rows
    return (rows - np.array(mean, np.float32)[:, None]) / np.array(std, np.float32)[:, None]
