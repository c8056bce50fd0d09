"""Shapes that the graph implies although it does not state them."""

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
    inferred = infer(reader.load(graph))
    shapes = {}
    for value in inferred.graph.output if inferred is not None else ():
        if value.type.tensor_type.HasField("shape"):
            shapes[value.name] = tuple(reader.read_dim(dim) for dim in value.type.tensor_type.shape.dim)
    return shapes


def infer(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy that states every shape that follows from what the model states; None where ONNX fails at it."""
    try:
        inferred = shape_inference.infer_shapes(model)
        # Of the model again: sizes that the first pass named keep their names, and equal ones have several.
        return shape_inference.infer_shapes(model, data_prop=True) if _sane(inferred) else inferred
    except Exception:  # a model with operators that ONNX does not know is served all the same
        return None


def _sane(model: onnx.ModelProto) -> bool:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = (value.type.tensor_type.shape for value in values)
    return all(dim.dim_value <= LARGEST_SIZE for shape in shapes for dim in shape.dim)
