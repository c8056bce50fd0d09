"""The names in a user's graph: which are taken, and how room is made for ours.

In ONNX no name may stand for two tensors, and a branch or a loop sees the tensors around it: so a name is
replaced everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx
from onnx import helper

from triton_repo_builder.model.graph import walk

PREFIX = "trb/"


def prefix(graph: onnx.GraphProto) -> str:
    """``trb/``, or the next one that is free: the model may be one that we composed before."""
    used = {name for inner in walk.graphs(graph) for name in _names(inner)}
    candidates = (PREFIX, *(f"trb{number}/" for number in range(2, 100)))
    return next(prefix for prefix in candidates if not any(name.startswith(prefix) for name in used))


def inputs(graph: onnx.GraphProto) -> set[str]:
    """Inputs of a request: before IR 4 initializers were listed as inputs, too."""
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    return {value.name for value in graph.input} - {value.name for value in graph.initializer} - sparse


def make_room(graph: onnx.GraphProto, ours: Iterable[str]) -> dict[str, str]:
    """Rename the user's tensors that are called like one of ours; returns old → new."""
    free = prefix(graph)
    moved = {name: f"{free}user/{name}" for name in ours}
    for inner in walk.graphs(graph):
        _rename(inner, moved)
    return moved


def rename_inputs(graph: onnx.GraphProto, renamed: Mapping[str, str]) -> None:
    """Give inputs other names, which no other tensor keeps."""
    if renamed:
        make_room(graph, set(renamed.values()) - inputs(graph))
        for inner in walk.graphs(graph):
            _rename(inner, renamed)


def set_apart(graph: onnx.GraphProto, outputs: Iterable[str], prefix: str) -> dict[str, str]:
    """Give the tensors behind ``outputs`` other names, so that these are free; returns old → new.

    Inputs and initializers that are outputs directly are copied by an ``Identity`` node.
    """
    node_outputs = {name for node in graph.node for name in node.output}
    moved = {name: prefix + name for name in outputs}
    listed = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in graph.output]
    for inner in walk.graphs(graph):
        _rename(inner, {name: new for name, new in moved.items() if name in node_outputs})
    graph.node.extend(
        helper.make_node("Identity", [name], [new], new)
        for name, new in moved.items()
        if name not in node_outputs
    )
    del graph.output[:]
    graph.output.extend(listed)
    return moved


def prefixed(nodes: Iterable[onnx.NodeProto], kept: Mapping[str, str], prefix: str) -> list[onnx.NodeProto]:
    """The nodes of one of our texts with a prefix before all names, except ``kept``."""
    renamed = []
    for number, node in enumerate(nodes):
        node.name = f"{prefix}{number}/{node.op_type}"
        node.input[:] = [name and kept.get(name, prefix + name) for name in node.input]
        node.output[:] = [kept.get(name, prefix + name) for name in node.output]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename_body(attribute.g, kept, prefix)
        renamed.append(node)
    return renamed


def _rename_body(body: onnx.GraphProto, kept: Mapping[str, str], prefix: str) -> None:
    """Prefix the names in a loop body of our text, whose nodes see the tensors of the outer graph."""
    for value in (*body.input, *body.output):
        value.name = prefix + value.name
    prefixed(body.node, kept, prefix)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for value in (*graph.input, *graph.initializer):
        yield value.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name
    for node in graph.node:
        yield node.name
        yield from node.output


def _rename(graph: onnx.GraphProto, moved: Mapping[str, str]) -> None:
    sparse = [tensor.values for tensor in graph.sparse_initializer]
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info, *sparse):
        value.name = moved.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [moved.get(name, name) for name in node.input]
        node.output[:] = [moved.get(name, name) for name in node.output]
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = moved.get(annotation.tensor_name, annotation.tensor_name)
        for entry in annotation.quant_parameter_tensor_names:
            entry.value = moved.get(entry.value, entry.value)
