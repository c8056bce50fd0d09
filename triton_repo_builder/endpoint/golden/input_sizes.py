"""Sizes of a tensor model's open axes that are tried until the model takes one of them.

A model is made for some sizes: the length of its context, three channels, a shortest sound. config.json and
the graph's own constants name some of them; the rest is tried, common sizes first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triton_repo_builder.model.graph import constants
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

COMMON = (8, 1, 16, 32, 64, 128, 224, 256)
LARGE = (400, 512, 1024, 4096, 16000, 48000)
"""Sizes of sounds and of long series."""
CHANNELS = (3, 1)
OF_IMAGES = (224, 64, 256, 384, 512, 640)
MOST = 1 << 24
"""Numbers of an input of a size that is not common."""
TRIES = 64
"""Sets of sizes that are put together from the model's own numbers."""
CONTEXT = "context_length"
LONGEST_CONTEXT = 4096
STATED = (
    CONTEXT,
    "num_input_channels",
    "num_channels",
    "in_channels",
    "image_size",
    "input_size",
    "prediction_length",
    "num_mel_bins",
    "feature_size",
    "max_source_positions",
    "sampling_rate",
)
"""Keys of config.json whose values are sizes."""


@dataclass(frozen=True)
class AxisSizes:
    """Sizes of the open axes but the first ones, which are rows."""

    other: int
    """Size of each axis that is not among ``named``."""
    named: Mapping[str, int] = field(default_factory=dict)
    """Sizes by ``axis_name``."""
    rows: int = 1

    def shape(self, spec: TensorSpec) -> tuple[int, ...]:
        """The shape of an input."""
        return tuple(
            dim
            if isinstance(dim, int)
            else self.rows
            if axis == 0
            else self.named.get(axis_name(spec, axis), self.other)
            for axis, dim in enumerate(spec.shape or ())
        )


def axis_name(spec: TensorSpec, axis: int) -> str:
    """The graph's name of an open axis: axes of one name have one size."""
    dim = (spec.shape or ())[axis]
    return dim if isinstance(dim, str) else f"{spec.name}:{axis}"


def tries(source: Source) -> Iterator[AxisSizes]:
    """Each set of sizes once, the likeliest first."""
    inputs = source.signature.inputs
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for sizes in itertools.chain(
        _context(source),
        map(AxisSizes, COMMON),
        _images(inputs),
        _named_by_model(source, inputs),
        map(AxisSizes, LARGE),
    ):
        shapes = tuple(sizes.shape(spec) for spec in inputs)
        if shapes not in seen and (
            sizes.other in COMMON or all(math.prod(shape) <= MOST for shape in shapes)
        ):
            seen.add(shapes)
            yield sizes


def _context(source: Source) -> Iterator[AxisSizes]:
    """The length that a model of time series is made for: it runs at others, and answers nonsense."""
    length = source.config.get(CONTEXT)
    if isinstance(length, int) and 1 < length <= LONGEST_CONTEXT:
        yield AxisSizes(length)


def _images(inputs: Sequence[TensorSpec]) -> Iterator[AxisSizes]:
    """Sizes with the usual channels of images in the second or the last axis."""
    of_images = [spec for spec in inputs if len(spec.shape or ()) == 4]
    for axis, channels in itertools.product((1, 3), CHANNELS):
        open_ones = [spec for spec in of_images if not isinstance((spec.shape or ())[axis], int)]
        named = {axis_name(spec, axis): channels for spec in open_ones}
        for size in OF_IMAGES if named else ():
            yield AxisSizes(size, named)


def _named_by_model(source: Source, inputs: Sequence[TensorSpec]) -> Iterator[AxisSizes]:
    """Sizes with the numbers that the model itself names for each axis."""
    stated = [source.config.get(name) for name in STATED]
    numbers = [number for number in stated if isinstance(number, int) and not isinstance(number, bool)]
    numbers += constants.sizes(source.skeleton)
    numbers = [number for number in dict.fromkeys(numbers) if 1 < number <= MOST]
    axes = dict.fromkeys(
        axis_name(spec, axis)
        for spec in inputs
        for axis, dim in enumerate(spec.shape or ())
        if axis and not isinstance(dim, int)
    )
    if not axes or not numbers:
        return
    together = itertools.product(numbers, repeat=len(axes))
    for values in itertools.islice(together, TRIES):
        yield AxisSizes(values[0], dict(zip(axes, values, strict=True)))
