"""Shapes of residual sums: with them ONNX Runtime makes one kernel of the sum and the layer norm after it.

It fuses ``LayerNormalization(x + y)`` to SkipLayerNormalization where it knows x and y to be of the same
three sizes (skip_layer_norm_fusion.cc), which it cannot infer inside a loop. A bias added to one of them
joins if that sum, too, has a known shape. This is faster with each ONNX Runtime that a Triton release has
had; from 1.30 on it is slower, and the embedded backend turns it off (ort_session.py).
"""

from __future__ import annotations

from collections import defaultdict

import onnx
from onnx import TensorProto, helper

from triton_repo_builder.model.graph import names, shape_inference

NORM = {"LayerNormalization", "ReduceMean"}
"""Layer norm of opset 17, and the first node of its older form; ONNX Runtime knows both."""
RANK = 3
Shape = tuple[str, str, int]


def state(model: onnx.ModelProto) -> None:
    """Add shapes that follow from the graph's inputs to its ``value_info``. Its nodes stay as they are."""
    sums = _sums(model.graph)
    shapes = _shapes(model) if sums else {}
    stated: dict[str, Shape] = {}
    for pair in sums:
        if all(name in shapes for name in pair) and len({shapes[name] for name in pair}) == 1:
            stated |= {name: shapes[name] for name in pair}
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Add" and stated.keys() & {*node.output} and constants & {*node.input}:
            stated |= {name: shapes[name] for name in node.input if name in shapes}
    kept = [value for value in model.graph.value_info if value.name not in stated]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    # Sizes of the same name in one graph are the same to ONNX Runtime, which reuses memory by them.
    prefix = names.prefix(model.graph)
    for name, (rows, length, width) in stated.items():
        shape = [prefix + rows, prefix + length, width]
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))


def _sums(graph: onnx.GraphProto) -> list[tuple[str, str]]:
    """Both terms of each sum that is normalised next."""
    readers: dict[str, set[str]] = defaultdict(set)
    for node in graph.node:
        for name in node.input:
            readers[name].add(node.op_type)
    return [
        (node.input[0], node.input[1])
        for node in graph.node
        if node.op_type == "Add" and len(node.input) == 2
        if any(NORM & readers[name] for name in node.output)
    ]


def _shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """Float tensors of three sizes, the last one known, the others by the names that inference gives them.

    Two sizes of one name are the same, whatever the inputs. The exporter's own shapes are left out: it names
    each size anew.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    inferred = shape_inference.infer(bare)
    shapes: dict[str, Shape] = {}
    for value in inferred.graph.value_info if inferred is not None else ():
        kind = value.type.tensor_type
        dims = kind.shape.dim
        if kind.elem_type != TensorProto.FLOAT or len(dims) != RANK or not dims[2].dim_value:
            continue
        if dims[0].dim_param and dims[1].dim_param:
            shapes[value.name] = (dims[0].dim_param, dims[1].dim_param, dims[2].dim_value)
    return shapes
