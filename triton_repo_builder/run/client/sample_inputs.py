"""Inputs made from an endpoint's metadata: texts or files, masks of ones, patterned numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from triton_repo_builder.base import resources
from triton_repo_builder.base.dtypes import BY_WIRE, pattern
from triton_repo_builder.repository.interface import Tensor
from triton_repo_builder.run.client.codec import Array

TEXTS = (
    "A short text.",
    "Größe, naïve café, 東京 🙂: letters beyond ASCII.",
    "The quick brown fox jumps over the lazy dog near the river bank. " * 4,
)
OPEN_AXES = (8, 224)
"""Sizes to try, in this order, for axes that a model leaves open."""
GOLDEN_RATIO = 2_654_435_769
"""Step modulo 2**32: the patterns of consecutive requests start far apart."""
LARGEST = 1 << 27
"""Bytes of the inputs of a request; a number counts as four or more, as smoke keeps each of them."""
AXES = 32
"""Axes of a tensor; numpy has no more."""


class TooLarge(Exception):
    """An input whose metadata state more than is made."""


def takes_files(tensors: Iterable[Tensor]) -> bool:
    """Whether an input may take images or sounds, by its name and type."""
    return any(tensor.datatype == "BYTES" and resources.samples(tensor.name) for tensor in tensors)


def unknown_type(tensors: Iterable[Tensor]) -> Tensor | None:
    """The first tensor of a type that numpy, and so this module, does not have."""
    return next((tensor for tensor in tensors if tensor.datatype not in BY_WIRE), None)


def request(
    tensors: Iterable[Tensor],
    number: int,
    *,
    batched: bool,
    size: int = OPEN_AXES[0],
    rows: int = 1,
    texts: Sequence[str] = (),
    files: bool = False,
) -> dict[str, Array]:
    """The inputs of request ``number``, with ``size`` for every open axis.

    ``texts`` has a text for each row; by default one of ``TEXTS``. With ``files`` inputs that are named after
    images or sounds get one of the package's. Raises KeyError for an unknown type, and ``TooLarge``.
    """
    lines = texts or [TEXTS[number % len(TEXTS)]] * rows
    encoded = [text.encode() for text in lines]
    arrays: dict[str, Array] = {}
    room = LARGEST
    for tensor in tensors:
        text = tensor.datatype == "BYTES"
        sample_files = [*resources.samples(tensor.name).values()] if text and files else []
        strings = [sample_files[number % len(sample_files)]] * len(lines) if sample_files else encoded
        # One text per row is the usual front of a text model; an open axis gets one text as well.
        shape = tuple((1 if text else size) if dim < 0 else dim for dim in tensor.shape)
        shape = (len(lines), *shape[1:]) if batched else shape
        room -= math.prod(shape) * (
            4 + max(map(len, strings)) if text else max(4, BY_WIRE[tensor.datatype].size)
        )
        if room < 0 or len(shape) > AXES:
            dims = " x ".join(map(str, shape))
            raise TooLarge(
                f"input {tensor.name} of {dims:.60} is more than is made: {LARGEST:,} bytes, {AXES} axes"
            )
        arrays[tensor.name] = _strings(shape, strings, batched) if text else _numbers(tensor, number, shape)
    return arrays


def constants(tensors: Iterable[Tensor]) -> list[dict[str, Any]]:
    """A request of one row in the protocol's JSON: "hello" for text, else zeros, open axes 1.

    ``data`` is one value, to be repeated for every element.
    """
    return [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": [max(1, dim) for dim in tensor.shape],
            "data": _constant(tensor.datatype),
        }
        for tensor in tensors
    ]


def _strings(shape: tuple[int, ...], values: Sequence[bytes], batched: bool) -> Array:
    """A text or file for each row, repeated along the other axes."""
    array = np.empty(shape, dtype=object)
    for number, value in enumerate(values if batched else values[:1]):
        array[number if batched else ...] = value
    return array


def _numbers(tensor: Tensor, number: int, shape: tuple[int, ...]) -> Array:
    if "mask" in tensor.name.lower():
        return np.ones(shape, dtype=BY_WIRE[tensor.datatype].numpy)
    # Of integers a pattern has 0 and 1: valid tokens of any vocabulary.
    return pattern(shape, tensor.datatype, GOLDEN_RATIO * (number + 1) % 2**32)


def _constant(datatype: str) -> Any:
    if datatype == "BYTES":
        return "hello"
    if datatype == "BOOL":
        return False
    return 0.0 if datatype.startswith("FP") else 0
