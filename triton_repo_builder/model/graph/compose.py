"""Puts a front before a user's graph and a head after it. The user's nodes and weights are not touched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import helper

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.releases import Release
from triton_repo_builder.model.graph import (
    loop,
    names,
    node_rules,
    query_blocks,
    reader,
    residual,
    token_sums,
)
from triton_repo_builder.model.graph.packing import rewrite as packing
from triton_repo_builder.model.graph.parts import Front, Head
from triton_repo_builder.model.graph.ragged import GROUP_SHARED
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.skeleton import Skeleton
from triton_repo_builder.repository.tensor_names import ROW_LENGTHS


def compose(
    graph: Skeleton,
    *,
    weights: str,
    head: Head | None,
    release: Release,
    front: Front | None = None,
    outputs: Iterable[TensorSpec] = (),
) -> bytes:
    """The served ``model.onnx``: the user's graph with ``front`` before and ``head`` after.

    ``weights`` is the name of the user's file beside it. ``outputs`` have the sizes that are known of the
    graph's outputs, which the graph itself may leave open. Without front and head only the IR version
    changes. Raises ``TrbError`` TOO_NEW, UNSUPPORTED_MODEL.
    """
    model = reader.load(graph, location=weights)
    if front is not None:
        # Before the head, which may use the front's outputs.
        before = onnx.parser.parse_graph(front.text)
        # The loop renames the tensors that it shares.
        reserved = {value.name for value in (*before.input, *before.output)} - {*GROUP_SHARED}
        reserved |= {ROW_LENGTHS} if front.packed else set()
        names.make_room(model.graph, reserved - names.inputs(model.graph))
    if front is not None and front.group:
        _state_sizes(model.graph, outputs)
        token_sums.in_order(model)
        if front.packed:
            packing.pack(model)
        else:
            residual.state(model)
            if front.blocks:
                query_blocks.write(model)
        _loop(model, head, front, graph.path)
    else:
        if head is not None:
            _append(model, head, graph.path)
        if front is not None:
            _prepend(model, before)
    model.ir_version = min(model.ir_version, release.max_ir)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _loop(model: onnx.ModelProto, head: Head | None, front: Front, path: Path) -> None:
    """A head that needs outputs of the front is run with each group; any other once, after the loop."""
    inside = head is not None and not {"attention_mask", "input_ids"}.isdisjoint(head.bind.values())
    if head is not None and inside:
        _append(model, head, path)
    elif head is not None:
        needed = set(head.bind.values())
        kept = [value for value in model.graph.output if value.name in needed]
        del model.graph.output[:]
        model.graph.output.extend(kept)
    loop.wrap(model.graph, front)
    if head is not None and not inside:
        _append(model, head, path)
    model.ir_version = max(model.ir_version, 4)


def _state_sizes(graph: onnx.GraphProto, outputs: Iterable[TensorSpec]) -> None:
    """State the outputs' sizes: ONNX Runtime infers the initial sizes of a loop-carried tensor."""
    sizes = {spec.name: spec.dims for spec in outputs}
    for value in graph.output:
        for dim, size in zip(value.type.tensor_type.shape.dim, sizes.get(value.name, ()), strict=False):
            if size > 0:
                dim.dim_value = size


def _append(model: onnx.ModelProto, head: Head, path: Path) -> None:
    opset = node_rules.opset(model)
    if opset < head.oldest_opset:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"opset {opset} is too old for a head in the graph",
            where=str(path),
            remedy=f"export with opset {head.oldest_opset} or newer, or use --task tensor",
        )
    graph = onnx.parser.parse_graph(head.text)
    outputs = {value.name for value in graph.output}
    prefix = names.prefix(model.graph)
    inputs = names.inputs(model.graph)
    mask = head.bind.get("attention_mask")
    # The model itself may take no mask; pooling needs one, so the served model does.
    own_mask = {mask} - inputs if mask else set()
    shared = sorted(outputs & inputs)
    if shared:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"the model's input '{shared[0]}' has the name of an output that trb adds",
            where=str(path),
            remedy="rename the input and export again, or use --task tensor",
        )
    moved = names.make_room(model.graph, outputs | own_mask | {*head.inputs})
    rename = {name: moved.get(tensor, tensor) for name, tensor in head.bind.items()}
    rename |= {name: name for name in outputs}
    for name in own_mask:
        rename["attention_mask"] = name
        model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["B", "T"]))
    rows = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value or "B"
    for name in head.inputs:
        rename[name] = name
        model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [rows, 2]))
    for name, values in head.strings:
        rename[name] = prefix + name
        encoded = [value.encode() for value in values]
        model.graph.initializer.append(
            helper.make_tensor(prefix + name, onnx.TensorProto.STRING, [len(values)], encoded)
        )
    for name, shape, data in head.floats:
        rename[name] = prefix + name
        constant = helper.make_tensor(prefix + name, onnx.TensorProto.FLOAT, shape, data, raw=True)
        model.graph.initializer.append(constant)
    for number, node in enumerate(graph.node):
        added = model.graph.node.add()
        added.CopyFrom(node)
        added.name = f"{prefix}{number}/{node.op_type}"
        added.input[:] = [rename.get(name, prefix + name) for name in node.input]
        added.output[:] = [rename.get(name, prefix + name) for name in node.output]
    _keep_rows(model.graph)
    del model.graph.output[:]
    model.graph.output.extend(graph.output)
    if rows != "B":  # ONNX Runtime does not always infer it
        for value in model.graph.output:
            first = value.type.tensor_type.shape.dim[0]
            if first.dim_param == "B":
                first.dim_value = rows
    # Before IR 4 an initializer had to be an input as well, which ours is not.
    model.ir_version = max(model.ir_version, 4)


def _keep_rows(graph: onnx.GraphProto) -> None:
    """If the user's graph states how many rows an output has, the head's outputs have as many.

    That is what config.pbtxt states, and Triton compares it with what ONNX Runtime infers: the graph's stated
    output shapes must stay when these tensors are no longer outputs.
    """
    typed = {value.name for value in (*graph.input, *graph.value_info)}
    for value in graph.output:
        shape = value.type.tensor_type.shape.dim
        if value.name not in typed and shape and shape[0].dim_value > 0:
            sizes = [shape[0].dim_value, *[None] * (len(shape) - 1)]
            kind = value.type.tensor_type.elem_type
            graph.value_info.append(helper.make_tensor_value_info(value.name, kind, sizes))


def _prepend(model: onnx.ModelProto, graph: onnx.GraphProto) -> None:
    """The front's outputs replace the user's inputs, whose names they have."""
    prefix = names.prefix(model.graph)
    interface = {value.name for value in (*graph.input, *graph.output)}
    added = []
    for number, node in enumerate(graph.node):
        node.name = f"{prefix}front/{number}/{node.op_type}"
        node.input[:] = [name if name in interface else f"{prefix}front/{name}" for name in node.input]
        node.output[:] = [name if name in interface else f"{prefix}front/{name}" for name in node.output]
        added.append(node)
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*added, *rest])
    kept = [value for value in model.graph.input if value.name not in interface]
    del model.graph.input[:]
    model.graph.input.extend([*graph.input, *kept])
    model.ir_version = max(model.ir_version, 4)
