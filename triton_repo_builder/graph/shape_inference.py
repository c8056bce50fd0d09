"""Output shapes that the graph implies although it does not state them."""

from __future__ import annotations

import onnx
from onnx import shape_inference

from triton_repo_builder.graph import reader
from triton_repo_builder.read.signature import Dim
from triton_repo_builder.read.skeleton import Skeleton

LARGEST_SIZE = 1 << 24
"""A fixed size above this is a mistake, for which ONNX takes gigabytes to follow the values of shapes."""


def output_shapes(graph: Skeleton) -> dict[str, tuple[Dim, ...]]:
    """Output shapes by ONNX's own inference on the skeleton; outputs of unknown rank are left out."""
    model = reader.load(graph)
    try:
        inferred = shape_inference.infer_shapes(model)
        if _sane(inferred):
            inferred = shape_inference.infer_shapes(inferred, data_prop=True)
    except Exception:  # a model with operators that ONNX does not know is served all the same
        return {}
    shapes = {}
    for value in inferred.graph.output:
        if value.type.tensor_type.HasField("shape"):
            shapes[value.name] = tuple(reader.read_dim(dim) for dim in value.type.tensor_type.shape.dim)
    return shapes


def _sane(model: onnx.ModelProto) -> bool:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = (value.type.tensor_type.shape for value in values)
    return all(dim.dim_value <= LARGEST_SIZE for shape in shapes for dim in shape.dim)
