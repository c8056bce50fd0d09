"""Ultralytics' letterbox: an image of any shape into one of fixed shape, its own shape kept, grey around it.

Beside model.py in the server, for models that Ultralytics exported; needs numpy. The pixels are
those of ``cv2.resize(INTER_LINEAR)`` bit for bit: OpenCV computes it in integers of 11 bits
(modules/imgproc/src/resize.cpp), and Pillow's bilinear filter gives other ones.
"""

from typing import Any

import numpy as np

GREY = 114
ONE = np.float32(2048)
"""Weight of a pixel that counts alone."""


def letterbox(image: Any, height: int, width: int) -> Any:
    """uint8 [rows, columns, 3] → [height, width, 3]."""
    rows, columns = placed(image.shape[0], image.shape[1], height, width)
    top, left = round((height - rows) / 2 - 0.1), round((width - columns) / 2 - 0.1)
    boxed = np.full((height, width, 3), GREY, dtype=np.uint8)
    boxed[top : top + rows, left : left + columns] = resized(image, rows, columns)
    return boxed


def placed(rows: int, columns: int, height: int, width: int) -> tuple[int, int]:
    """(rows, columns) of an image of that size in the letterbox."""
    gain = min(height / rows, width / columns)
    return max(round(rows * gain), 1), max(round(columns * gain), 1)


def resized(image: Any, height: int, width: int) -> Any:
    """As OpenCV: bilinear without a filter, an image that is halved by the mean of four."""
    rows, columns = image.shape[:2]
    if (rows, columns) == (height, width):
        return image
    if (rows, columns) == (2 * height, 2 * width):
        wide = image.astype(np.int32)
        four = wide[::2, ::2] + wide[1::2, ::2] + wide[::2, 1::2] + wide[1::2, 1::2]
        return ((four + 2) >> 2).astype(np.uint8)
    place, share = _places(columns, width)
    share = np.where((place < 0) | (place >= columns - 1), np.float32(0), share)
    near, far = _weights(share)
    here = np.clip(place, 0, columns - 1)
    there = np.minimum(here + 1, columns - 1)

    def across(lines: Any) -> Any:
        needed = image[np.clip(lines, 0, rows - 1)]
        before, after = needed[:, here].astype(np.int32), needed[:, there].astype(np.int32)
        return (before * near[:, None] + after * far[:, None]) >> 4

    line, share = _places(rows, height)
    upper, lower = _weights(share)
    total = (across(line) * upper[:, None, None] >> 16) + (across(line + 1) * lower[:, None, None] >> 16)
    return ((total + 2) >> 2).astype(np.uint8)


def _places(source: int, target: int) -> tuple[Any, Any]:
    """For each target pixel the source pixel before it, and how far it is on the way to the next."""
    scale = 1.0 / (target / source)
    places = ((np.arange(target) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(places)
    return first.astype(np.int64), places - first


def _weights(share: Any) -> tuple[Any, Any]:
    return np.rint((1 - share) * ONE).astype(np.int32), np.rint(share * ONE).astype(np.int32)
