"""Records golden cases of an image endpoint: transformers' preprocessing, ONNX Runtime on the untouched file.

The images are small files of this package (``images/``), the same bytes for every build: JPEG and PNG, grey,
with a palette, with alpha, in CMYK, turned by EXIF, tall and wide.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import resources
from triton_repo_builder.endpoint.golden import media
from triton_repo_builder.model.read import image_reference, timm_config, transformers_library
from triton_repo_builder.model.read.image_processor import ImageSpec

INPUT = resources.IMAGE
OTHERS = {"LetterBox": "LetterBox of Ultralytics", timm_config.KIND: "the steps of timm's eval transform"}
"""Preprocessing that is not transformers'."""


def images() -> Mapping[str, bytes]:
    """Name → file, the smallest first."""
    return resources.samples(INPUT)


def pixels(spec: ImageSpec, layout: str, files: Mapping[str, bytes]) -> list[npt.NDArray[Any]]:
    """The graph's input for each of these files. Raises ``TrbError`` if the served code gives another."""
    values = image_reference.prove(spec, list(files.values()))
    return [np.ascontiguousarray(np.moveaxis(row, 0, 2)) for row in values] if layout == "NHWC" else values


def given_images(spec: ImageSpec, layout: str) -> media.Files:
    """The images of this package and their pixels, which the served code gives, too. Raises ``TrbError``."""
    files = images()
    tools = f"transformers {transformers_library.version()} {spec.kind or 'image_transforms'}"
    return media.Files(
        field=INPUT,
        files=files,
        values=pixels(spec, layout, files),
        sizes=np.array([_size(data) for data in files.values()]),
        tools=OTHERS.get(spec.kind, tools),
    )


def _size(data: bytes) -> tuple[int, int]:
    """Rows and columns of an image file, turned as its EXIF orientation says."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return image.height, image.width
