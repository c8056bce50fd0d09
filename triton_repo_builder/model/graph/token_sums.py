"""Sums over the tokens of a row, in an order that neither padding nor the other rows of a batch change.

For ReduceSum over the tokens of [rows, tokens, width] ONNX Runtime adds token by token if there is one row,
and otherwise in an order that depends on the number of tokens (reduction_ops.cc: FastReduceRK and KRK); so
does a product with weights, MatMul. Of a matrix [tokens, rows x width] it always adds line by line, and
padding adds zeros at the end: an answer is the same, to the last bit, whatever is computed beside it. The
weighted sums of our own heads are written so, too (heads/pooling.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper, numpy_helper

from triton_repo_builder.model.graph import names, shape_inference, walk

KINDS = {"ReduceSum", "ReduceMean"}
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE}
RANK = 3
TOKENS = 1
"""Axis."""


def in_order(model: onnx.ModelProto) -> None:
    """Rewrite each sum and mean over axis 1 of three of the graph itself, not of its subgraphs."""
    graph = model.graph
    chosen = [node for node, axes in _axes(graph) if axes in ([TOKENS], [TOKENS - RANK])]
    of_three = _of_three(model) if chosen else set()
    chosen = [node for node in chosen if node.input[0] in of_three]
    if not chosen:
        return
    prefix = f"{names.prefix(graph)}sums/"
    outputs = {node.output[0] for node in chosen}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes += _rewritten(node, prefix) if outputs & {*node.output} else [node]
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for inner in walk.graphs(graph) for node in inner.node for name in node.input}
    read |= {value.name for inner in walk.graphs(graph) for value in inner.output}
    # ONNX Runtime warns of each constant that nothing reads.
    axes_were = {name for node in chosen for name in node.input[1:]}
    kept = [tensor for tensor in graph.initializer if tensor.name in read or tensor.name not in axes_were]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for name, values in {"tokens": [0], "one": [1], "rows": [1], "width": [2], "flat": [0, -1]}.items():
        if prefix + name in read:
            tensor = helper.make_tensor(prefix + name, TensorProto.INT64, [len(values)], values)
            graph.initializer.append(tensor)


def _axes(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, list[int]]]:
    """Each sum and mean whose axes are known, with them: an attribute, from opset 13 and 18 an input."""
    constants = dict(walk.constants(graph))
    for node in graph.node:
        if node.op_type not in KINDS or node.domain not in ("", "ai.onnx"):
            continue
        if not node.input or len(node.output) != 1:
            continue  # a damaged file; ONNX Runtime names the fault
        stated = next(
            (list(attribute.ints) for attribute in node.attribute if attribute.name == "axes"), None
        )
        if stated is None and len(node.input) > 1 and node.input[1] in constants:
            stated = numpy_helper.to_array(constants[node.input[1]]).reshape(-1).tolist()
        if stated is not None:
            yield node, stated


def _of_three(model: onnx.ModelProto) -> set[str]:
    """Float tensors of three sizes."""
    inferred = shape_inference.infer(model) or model
    return {
        value.name
        for value in (*inferred.graph.input, *inferred.graph.value_info)
        if value.type.tensor_type.elem_type in FLOATS and len(value.type.tensor_type.shape.dim) == RANK
    }


def _rewritten(node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto]:
    base = f"{prefix}{node.output[0]}/"
    keepdims = next((attribute.i for attribute in node.attribute if attribute.name == "keepdims"), 1)
    reduced = helper.make_node(node.op_type, [f"{base}matrix"], [f"{base}reduced"], node.name, keepdims=0)
    if len(node.input) > 1:
        reduced.input.append(f"{prefix}tokens")
    else:
        reduced.attribute.append(helper.make_attribute("axes", [0]))
    sizes = ["rows", "one", "width"] if keepdims else ["rows", "width"]
    return [
        helper.make_node("Transpose", node.input[:1], [f"{base}by_token"], f"{base}by_token", perm=[1, 0, 2]),
        helper.make_node("Shape", [f"{base}by_token"], [f"{base}sizes"], f"{base}sizes"),
        *(
            helper.make_node("Gather", [f"{base}sizes", prefix + name], [base + name], base + name)
            for name in ("rows", "width")
        ),
        helper.make_node(
            "Concat",
            [prefix + name if name == "one" else base + name for name in sizes],
            [f"{base}answer"],
            f"{base}answer",
            axis=0,
        ),
        helper.make_node("Reshape", [f"{base}by_token", f"{prefix}flat"], [f"{base}matrix"], f"{base}matrix"),
        reduced,
        helper.make_node("Reshape", [f"{base}reduced", f"{base}answer"], node.output, f"{base}result"),
    ]
