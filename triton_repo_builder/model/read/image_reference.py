"""The pixels that transformers makes of an image, by which the served code is proven."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import image_processor, timm_config, transformers_library
from triton_repo_builder.model.read.image_processor import TYPES, ImageSpec

CLOSE = 1e-5
"""Allowed difference from transformers' pixels, relative to the largest value, or absolute below 1."""
LEVEL = 1.01 / 255
"""OpenCV rounds twice: the letterbox's pixels may be one level off exact ones."""
NOT_ONE_IMAGE = "pixel_values are not one image of three channels"

Pixels = npt.NDArray[Any]


def reference(spec: ImageSpec) -> Callable[[bytes], Pixels]:
    """An image file → [3, height, width] by transformers: the file's own class, else its functions."""
    load_image = transformers_library.load("image_utils").load_image
    without_class = spec.letterbox is not None or spec.kind == timm_config.KIND
    processor = image_processor.processor(spec.file) if spec.kind and not without_class else None

    def pixels(data: bytes) -> Pixels:
        from PIL import Image

        image = load_image(Image.open(io.BytesIO(data)))
        if spec.letterbox is not None:
            return _boxed(np.asarray(image), *spec.letterbox)
        if spec.kind == timm_config.KIND:
            return _by_timm(spec, image)
        if processor is None:
            return _by_functions(spec, np.asarray(image))
        array = np.asarray(processor(images=[image], return_tensors="np")["pixel_values"])
        if array.ndim != 4 or array.shape[:2] != (1, 3):
            raise ValueError(NOT_ONE_IMAGE)
        return np.asarray(array[0])

    return pixels


def _by_functions(spec: ImageSpec, image: Pixels) -> Pixels:
    """The steps as ``transformers.image_transforms`` does them; [height, width, 3] → [3, height, width]."""
    steps = transformers_library.load("image_transforms")
    kind = {"input_data_format": "channels_last"}
    if spec.resize is not None:
        edges = ("height", "width") if "height" in spec.resize else ("shortest_edge",)
        size = steps.get_resize_output_image_size(
            image, tuple(spec.resize[edge] for edge in edges), default_to_square=False, **kind
        )
        image = steps.resize(image, size=size, resample=spec.resample, **kind)
    if spec.jpeg:
        image = _through_jpeg(image, spec.jpeg)
    if spec.crop is not None:
        image = steps.center_crop(image, size=spec.crop, **kind)
    if spec.rescale is not None:
        image = steps.rescale(image, spec.rescale, **kind)
    if spec.mean is not None and spec.std is not None:
        image = steps.normalize(image, mean=spec.mean, std=spec.std, **kind)
    if spec.flip:
        image = steps.flip_channel_order(image, **kind)
    return np.moveaxis(image, -1, 0).astype(np.float32)


def _by_timm(spec: ImageSpec, image: Any) -> Pixels:
    """The steps of timm's transforms, which are torchvision's on Pillow's images (functional.py there)."""
    assert (
        spec.resize is not None and spec.crop is not None and spec.mean is not None and spec.std is not None
    )
    width, height = image.size
    if edge := spec.resize.get("shortest_edge"):
        tall = (edge, int(edge * height / width))
        size = tall if width <= height else (int(edge * width / height), edge)
    else:
        size = spec.resize["width"], spec.resize["height"]
    image = image.resize(size, spec.resample)
    rows, columns = spec.crop
    left, top = round((size[0] - columns) / 2.0), round((size[1] - rows) / 2.0)
    cut = np.asarray(image.crop((left, top, left + columns, top + rows)), dtype=np.float32) / np.float32(255)
    normal = (cut - np.array(spec.mean, np.float32)) / np.array(spec.std, np.float32)
    return np.moveaxis(normal, -1, 0)


def _boxed(image: Pixels, height: int, width: int) -> Pixels:
    """Ultralytics' letterbox in double precision: OpenCV's own rounding is half a level away from it."""
    gain = min(height / image.shape[0], width / image.shape[1])
    size = tuple(max(round(edge * gain), 1) for edge in image.shape[:2])
    grid = []
    for edge, target in zip(image.shape, size, strict=False):
        places = np.clip((np.arange(target) + 0.5) * edge / target - 0.5, 0, edge - 1)
        first = np.minimum(places.astype(int), max(edge - 2, 0))
        grid.append((first, np.minimum(first + 1, edge - 1), places - first))
    (top, bottom, down), (left, right, along) = grid
    along, down = along[:, None], down[:, None, None]
    wide = image.astype(np.float64)
    rows = wide[:, left] * (1 - along) + wide[:, right] * along
    boxed = np.full((height, width, 3), 114.0)
    at = [round((whole - part) / 2 - 0.1) for whole, part in zip((height, width), size, strict=True)]
    boxed[at[0] : at[0] + size[0], at[1] : at[1] + size[1]] = rows[top] * (1 - down) + rows[bottom] * down
    return np.moveaxis(boxed / 255, 2, 0).astype(np.float32)


def _through_jpeg(image: Pixels, quality: int) -> Pixels:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(image).save(stream, format="JPEG", quality=quality)
    return np.asarray(Image.open(stream).convert("RGB"))


def prove(spec: ImageSpec, images: Sequence[bytes]) -> list[Pixels]:
    """Pixels of each of ``images`` by transformers, [3, height, width].

    ``TrbError`` if the served code gives others: so a processor with steps of its own is refused
    under any name.
    """
    from triton_repo_builder.runtime.image_pixels import Pixels as Served

    try:
        expected = list(map(reference(spec), images))
    except TrbError:
        raise
    except Exception as error:
        raise image_processor.refused(
            spec.file, f"{spec.kind or 'the preprocessing'} fails on an image: {error}"
        ) from None
    served = Served(spec.settings("NCHW"))
    pixels = [served(data) for data in images]
    for row, actual in zip(expected, pixels, strict=True):
        off = float("inf") if actual.shape != row.shape else float(np.abs(actual - row).max())
        if not off <= (LEVEL if spec.letterbox else CLOSE * max(1.0, float(np.abs(row).max()))):
            raise image_processor.refused(
                spec.file,
                f"{spec.kind or 'its preprocessing'} does more than resize, crop, rescale and normalise",
            )
    # The original's own letterbox rounds as OpenCV does, and so does the served one.
    return pixels if spec.letterbox else expected


def check_unnamed(spec: ImageSpec, images: Sequence[bytes]) -> None:
    """``TrbError`` if a file names no class, and the one that config.json leads to reads it otherwise."""
    if spec.kind or spec.letterbox or not (spec.file.parent / "config.json").is_file():
        return
    try:
        chosen = image_processor.processor(spec.file)
        kind = type(chosen).__name__.removesuffix("Pil")
        expected = list(map(reference(replace(spec, kind=kind)), images))
    except Exception:  # an unreadable file decides nothing
        return
    literal = reference(spec)
    for data, pixels in zip(images, expected, strict=True):
        actual = literal(data)
        largest = max(1.0, float(np.abs(pixels).max()))
        if actual.shape != pixels.shape or not np.abs(actual - pixels).max() <= CLOSE * largest:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"names no class, and as it stands it makes other pixels than {kind}, which transformers "
                "takes for this model_type",
                where=str(spec.file),
                remedy=f'write "{TYPES[0]}": "{kind}" into it for the answers of transformers, or give the '
                "file to --preprocessor to have it taken as it stands (docs/images.md)",
            )
