"""Nodes that ONNX Runtime refuses: operators that nobody registered, inputs that nothing writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import onnx

from triton_repo_builder.base import releases
from triton_repo_builder.base.releases import CONTRIB, Release
from triton_repo_builder.model.graph import node_rules, node_types, operators, reader, shape_inference
from triton_repo_builder.model.read.skeleton import Skeleton

_ONNX = ("", "ai.onnx")
_OLD = frozenset(
    [
        "ATen",
        "Affine",
        "Crop",
        "DynamicSlice",
        "GRUUnit",
        "GivenTensorFill",
        "ImageScaler",
        "LayerNormalization",
        "MeanVarianceNormalization",
        "ParametricSoftplus",
        "Scale",
        "ScaledTanh",
        "SimplifiedLayerNormalization",
        "ThresholdedRelu",
    ]
)
"""Operators of ONNX's own domain that ONNX Runtime knows in any opset."""


def faults(graph: Skeleton, release: Release) -> Iterator[str]:
    """Each fault in the words of the release's ONNX Runtime, on any device."""
    model = reader.load(graph)
    sound = True
    for fault in _faults(model, release):
        sound = False
        yield fault
    if sound:  # else a consequence of a fault would be another fault
        yield from shape_inference.faults(model, str(graph.path))


def sound_in(graph: Skeleton, names: Iterable[str]) -> tuple[str, ...]:
    """The names of the releases whose ONNX Runtime finds no fault."""
    model = reader.load(graph)
    if any(shape_inference.faults(model, str(graph.path))):
        return ()
    candidates = [releases.get(name) for name in names]
    oldest = {release.onnxruntime: release for release in reversed(candidates)}
    sound = {version for version, release in oldest.items() if not any(_faults(model, release))}
    return tuple(release.name for release in candidates if release.onnxruntime in sound)


def _faults(model: onnx.ModelProto, release: Release) -> Iterator[str]:
    opsets = {entry.domain or "": entry.version for entry in model.opset_import}
    opsets.setdefault("", opsets.get("ai.onnx", 0))
    functions = {(function.domain, function.name): function for function in model.functions}
    seen: set[str] = set()
    called: set[tuple[str, str]] = set()
    waiting = [(_nodes(model.graph), opsets)]
    while waiting:
        nodes, versions = waiting.pop()
        for node in nodes:
            key = (node.domain, node.op_type)
            if (function := functions.get(key)) is None:
                message = _operator(node, versions, release)
                if message and message not in seen:
                    seen.add(message)
                    yield message
            elif key not in called:
                called.add(key)
                imports = {entry.domain: entry.version for entry in function.opset_import}
                waiting.append((_with_subgraphs(function.node), opsets | imports))
    if opsets.get(CONTRIB, 1) > 1:
        yield f"Current official support for domain {CONTRIB} is till opset 1."
    yield from _undefined(model.graph, frozenset())
    yield from _duplicates(model.graph)
    yield from _order(model.graph)
    yield from _inner_order(model.graph)
    if not seen:
        foreign = functions.keys() | {("", name) for name in _OLD} | {("ai.onnx", name) for name in _OLD}
        yield from node_types.faults(model.graph, opsets, foreign)


def without_kernel(graph: Skeleton, release: Release) -> Iterator[str]:
    """Operators that the release's ONNX Runtime knows and cannot run on a CPU, in its words."""
    for node, since in operators.without_kernel(graph, release):
        if node.domain != CONTRIB or release.knows(node.domain, node.op_type):
            name = f" node with name '{node.name}'"
            yield f"Could not find an implementation for {node.op_type}({since}){name}"


def _operator(node: onnx.NodeProto, opsets: dict[str, int], release: Release) -> str:
    if node.domain not in (*_ONNX, "ai.onnx.ml"):
        if release.knows(node.domain, node.op_type):
            return _attribute(node, release)
        return f"Fatal error: {node.domain}:{node.op_type}(-1) is not a registered function/op"
    domain = "" if node.domain in _ONNX else node.domain
    version = opsets.get(domain, 0)
    newest = onnx.defs.onnx_opset_version() if not domain else operators.LATEST
    if not version or version > newest or node.op_type in _OLD:
        return ""
    rules = None if version < 0 else node_rules.schema(node.op_type, version, domain)
    if rules is None:
        return f"No Op registered for {node.op_type} with domain_version of {version}"
    return node_rules.fault(node, rules, version)


def _attribute(node: onnx.NodeProto, release: Release) -> str:
    """An attribute of one of ONNX Runtime's own operators that the release's does not take."""
    for attribute in node.attribute if node.domain == CONTRIB else ():
        if not release.takes(node.op_type, attribute.name, 0):
            return f"Unrecognized attribute: {attribute.name} for operator {node.op_type}"
        if not release.takes(node.op_type, attribute.name, attribute.i):
            return f"{node.op_type} does not support {attribute.name} = {attribute.i}"
    return ""


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    return _with_subgraphs(graph.node)


def _with_subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and the nodes of graphs in their attributes."""
    waiting: list[Iterable[onnx.NodeProto]] = [nodes]
    while waiting:
        for node in waiting.pop():
            yield node
            for attribute in node.attribute:
                waiting += [attribute.g.node] if attribute.HasField("g") else []
                waiting += [graph.node for graph in attribute.graphs]


def _duplicates(graph: onnx.GraphProto) -> Iterator[str]:
    """Names that stand for two inputs, or two nodes; constants are initializers before they are compared."""
    nodes = (node.name for node in graph.node if node.name and node.op_type != "Constant")
    for names, message in (
        ((value.name for value in graph.input), "Error: Duplicate definition-site for ({})."),
        (nodes, "Error: two nodes with same node name ({})."),
    ):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                yield f"This is an invalid model. {message.format(name)}"
                break
            seen.add(name)


def _inner_order(graph: onnx.GraphProto) -> Iterator[str]:
    """Nodes of the graphs in attributes, whose order is not free."""
    for node in _nodes(graph):
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                later = {name for inner in body.node for name in inner.output if name}
                for inner in body.node:
                    if name := next((name for name in inner.input if name in later), ""):
                        yield (
                            "Nodes in a graph must be topologically sorted, however input "
                            f"'{name}' of node: {inner.op_type} is written by a later one."
                        )
                        return
                    later -= {*inner.output}


def _order(graph: onnx.GraphProto) -> Iterator[str]:
    """Names written twice, and nodes that wait for each other; the order of the nodes is free."""
    writer: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name in writer:
                yield f"This is an invalid model. Error: Duplicate definition of name ({name})."
                return
            if name:
                writer[name] = index
    waits = [{writer[name] for name in node.input if name in writer} for node in graph.node]
    readers: list[list[int]] = [[] for _ in waits]
    for index, needed in enumerate(waits):
        for other in needed:
            readers[other].append(index)
    ready = [index for index, needed in enumerate(waits) if not needed]
    done = 0
    while ready:
        done += 1
        current = ready.pop()
        for index in readers[current]:
            waits[index].discard(current)
            if not waits[index]:
                ready.append(index)
    if done < len(waits):
        yield "This is an invalid model. Error: the graph is not acyclic."


def _undefined(graph: onnx.GraphProto, outside: Set[str]) -> Iterator[str]:
    written = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    written |= {tensor.values.name for tensor in graph.sparse_initializer}
    written |= {name for node in graph.node for name in node.output} | outside | {""}
    for node in graph.node:
        for name in node.input:
            if name not in written:
                yield (
                    f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a "
                    "previous node."
                )
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for body in (*inner, *attribute.graphs):
                yield from _undefined(body, written)
    for output in graph.output:
        if output.name not in written:
            yield f"Invalid model. The graph output '{output.name}' is written by no node."
