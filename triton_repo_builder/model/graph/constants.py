"""Sizes that a graph has as constants."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import numpy_helper

from triton_repo_builder.model.graph import reader, walk
from triton_repo_builder.model.read.skeleton import Skeleton

RESHAPES = ("Reshape", "Expand")
MOST = 64
"""Numbers in a constant that states a shape."""
MOST_BATCHES, LARGEST_BATCH = 4, 1024
"""How many, and which, numbers of rows are taken for a batch of an export."""


def sizes(graph: Skeleton) -> list[int]:
    """The sizes above 1 that the graph reshapes to, in its order; of kernels the length."""
    sizes_seen: dict[int, None] = {}
    model = reader.load(graph)
    for shape in _shapes(graph):
        sizes_seen.update(dict.fromkeys(shape[1:]))
    for node in walk.nodes(model):
        if node.op_type == "Conv":
            sizes_seen.update(
                (size, None) for each in node.attribute if each.name == "kernel_shape" for size in each.ints
            )
    return [size for size in sizes_seen if size > 1]


def rows(graph: Skeleton) -> list[int]:
    """Numbers above 1 that the graph reshapes the first axis to: a batch that was baked in."""
    first = dict.fromkeys(shape[0] for shape in _shapes(graph) if shape)
    return [size for size in first if 1 < size <= LARGEST_BATCH][:MOST_BATCHES]


def _shapes(graph: Skeleton) -> Iterator[list[int]]:
    """The constant shapes that the graph reshapes to."""
    model = reader.load(graph)
    tensors = {name: tensor for inner in walk.graphs(model.graph) for name, tensor in walk.constants(inner)}
    for node in walk.nodes(model):
        tensor = tensors.get(node.input[1]) if node.op_type in RESHAPES and len(node.input) > 1 else None
        if tensor is not None and len(tensor.dims) == 1 and tensor.dims[0] <= MOST:
            yield [int(size) for size in numpy_helper.to_array(tensor)]
