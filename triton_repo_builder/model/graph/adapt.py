"""The user's graph with the inputs that trb serves: constants put in, flat tokens made rows, other names.

``endpoint/golden/original.py`` feeds the untouched file accordingly, by arithmetic of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from triton_repo_builder.model.graph import names, walk
from triton_repo_builder.model.read.empty_cache import IDS, EmptyCache
from triton_repo_builder.model.read.input_constants import InputConstant
from triton_repo_builder.model.read.skeleton import Skeleton

# Rows of tokens, padded, → all tokens end to end, and where each row begins.
_FLAT = """
flat ({kind}[B, T] input_ids, int64[B, T] attention_mask) => (int64[N] tokens, int64[B] starts) {{
    every = Constant <value = int64[1] {{-1}}> ()
    places = Reshape (input_ids, every)
    mask = Reshape (attention_mask, every)
    is_real = Cast <to = 9> (mask)
    found = Compress <axis = 0> (places, is_real)
    tokens = Cast <to = {ids}> (found)
    zero = Constant <value = int64 {{0}}> ()
    before = CumSum <exclusive = 1> (mask, zero)
    sizes = Shape (attention_mask)
    before_rows = Reshape (before, sizes)
    first = Gather <axis = 1> (before_rows, zero)
    starts = Cast <to = {offsets}> (first)
}}
"""
_KINDS = {6: "int32", 7: "int64"}


def adapt(model: onnx.ModelProto, graph: Skeleton) -> None:
    """Change the inputs of ``model``, the graph of this skeleton, as that says."""
    if graph.constants:
        _constants(model, graph.constants)
    if graph.caches:
        _without_cache(model, graph.caches)
    if graph.flat:
        _rows(model, *graph.flat)
    names.rename_inputs(model.graph, graph.renamed)


def _constants(model: onnx.ModelProto, constants: Iterable[InputConstant]) -> None:
    prefix = names.prefix(model.graph)
    nodes: list[onnx.NodeProto] = []
    for constant in constants:
        _drop(model.graph, constant.name)
        value = np.array(constant.value, constant.dtype.numpy)
        value = value if constant.scalar else value.reshape(1)
        name = f"{prefix}{constant.name}" if constant.rows_of else constant.name
        model.graph.initializer.append(numpy_helper.from_array(value, name))
        if constant.rows_of:
            first = numpy_helper.from_array(np.zeros(1, np.int64), f"{name}/first")
            model.graph.initializer.append(first)
            nodes += [
                helper.make_node("Shape", [constant.rows_of], [f"{name}/shape"], f"{name}/shape"),
                helper.make_node("Gather", [f"{name}/shape", first.name], [f"{name}/rows"], f"{name}/rows"),
                helper.make_node("Expand", [name, f"{name}/rows"], [constant.name], f"{name}/filled"),
            ]
    _put_first(model, nodes)


def _without_cache(model: onnx.ModelProto, caches: Iterable[EmptyCache]) -> None:
    """Remove the caches: a join with one becomes the other tensor, its sizes become constants.

    Any other use gets an empty tensor.
    """
    graph = model.graph
    empty = {cache.name: cache for cache in caches}
    constants = dict(walk.constants(graph))
    shapes: dict[str, EmptyCache] = {}
    for name in empty:
        _drop(graph, name)
    for node in graph.node:
        rest = [name for name in node.input if name not in empty]
        cached = len(rest) < len(node.input)
        if cached and node.op_type == "Concat" and len(rest) == 1:
            node.CopyFrom(helper.make_node("Identity", rest, node.output, node.name))
        elif cached and node.op_type == "Shape" and not node.attribute:
            shapes[node.output[0]] = empty[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in shapes and node.input[1] in constants:
            index = numpy_helper.to_array(constants[node.input[1]])
            if (index != 0).all():
                sizes = np.array(shapes[node.input[0]].shape, np.int64)[index]
                value = numpy_helper.from_array(np.asarray(sizes))
                node.CopyFrom(helper.make_node("Constant", [], node.output, node.name, value=value))
    used = {name for node in walk.nodes(model) for name in node.input}
    prefix = names.prefix(graph)
    _put_first(
        model,
        [node for name, cache in empty.items() if name in used for node in _empty(graph, prefix, cache)],
    )


def _empty(graph: onnx.GraphProto, prefix: str, cache: EmptyCache) -> Iterable[onnx.NodeProto]:
    """[rows, …] without a number in it."""
    base = f"{prefix}{cache.name}"
    ones = np.ones(len(cache.shape) - 1, np.int64)
    for name, value in (
        ("/of_one", np.zeros(cache.shape, cache.dtype.numpy)),
        ("/ones", ones),
        ("/first", [0]),
    ):
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), base + name))
    yield helper.make_node("Shape", [IDS], [f"{base}/shape"], f"{base}/shape")
    yield helper.make_node("Gather", [f"{base}/shape", f"{base}/first"], [f"{base}/rows"], f"{base}/rows")
    yield helper.make_node(
        "Concat", [f"{base}/rows", f"{base}/ones"], [f"{base}/sizes"], f"{base}/sizes", axis=0
    )
    yield helper.make_node("Expand", [f"{base}/of_one", f"{base}/sizes"], [cache.name], f"{base}/filled")


def _rows(model: onnx.ModelProto, ids: str, offsets: str) -> None:
    """[tokens of all rows] and [rows] become input_ids and attention_mask, [batch, tokens]."""
    graph = model.graph
    inputs = {value.name: value for value in graph.input}
    tokens, starts = (inputs[name].type.tensor_type for name in (ids, offsets))
    batch = starts.shape.dim[0].dim_param or "batch"
    moved = names.make_room(graph, {ids, offsets, "input_ids", "attention_mask"})
    for name in (ids, offsets):
        _drop(graph, moved[name])
    text = _FLAT.format(kind=_KINDS[tokens.elem_type], ids=tokens.elem_type, offsets=starts.elem_type)
    kept = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    kept |= {"tokens": moved[ids], "starts": moved[offsets]}
    nodes = names.prefixed(onnx.parser.parse_graph(text).node, kept, f"{names.prefix(graph)}flat/")
    for name, kind in (("input_ids", tokens.elem_type), ("attention_mask", onnx.TensorProto.INT64)):
        graph.input.append(helper.make_tensor_value_info(name, kind, [batch, "tokens"]))
    _put_first(model, nodes)


def _drop(graph: onnx.GraphProto, name: str) -> None:
    kept = [value for value in graph.input if value.name != name]
    del graph.input[:]
    graph.input.extend(kept)


def _put_first(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    # Before IR 4 an initializer had to be an input as well, which ours is not.
    model.ir_version = max(model.ir_version, 4)
