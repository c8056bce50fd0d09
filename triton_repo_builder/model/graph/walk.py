"""Everything in a graph, in its subgraphs and in the model's functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, and those of If, Loop and Scan in it at any depth."""
    yield graph
    for node in graph.node:
        yield from _inner(node)


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from graphs(attribute.g)
        for inner in attribute.graphs:
            yield from graphs(inner)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the model."""
    for graph in graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from with_subgraphs(function.node)


def with_subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and the nodes of the graphs in them."""
    for node in nodes:
        yield node
        for graph in _inner(node):
            yield from graph.node


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor whose data may be in another file: initializers and attributes."""
    for graph in graphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes(model):
        yield from _attributes(node.attribute)


def constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Tensors of the graph itself that are in the model's own file and no request replaces."""
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.name not in inputs and not tensor.external_data:
            yield tensor.name, tensor
    for node in graph.node:
        stated = [attribute.t for attribute in node.attribute if attribute.name == "value"]
        if node.op_type == "Constant" and stated and not stated[0].external_data:
            yield node.output[0], stated[0]


def names(model: onnx.ModelProto) -> Iterator[str | bytes]:
    """Names of operators and tensors; protobuf gives one that is not UTF-8 as bytes."""
    yield from (model.producer_name, model.producer_version)
    yield from (entry.domain for entry in model.opset_import)
    for graph in graphs(model.graph):
        for node in graph.node:
            yield from (node.op_type, node.domain, node.name)
            yield from node.input
            yield from node.output
        yield from (tensor.name for tensor in graph.initializer)
        for value in (*graph.input, *graph.output):
            yield value.name
            yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


def _attributes(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
