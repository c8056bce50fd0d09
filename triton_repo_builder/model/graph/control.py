"""Decisions of a graph for all rows of a batch at once, and random numbers in it.

A few rows that are tried together need not show it: another row may be the one that changes the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from onnx import numpy_helper

from triton_repo_builder.model.graph import reader, shape_inference, walk
from triton_repo_builder.model.read.skeleton import Skeleton

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_SIZES = frozenset({"Shape", "Size"})
"""Operators whose answers do not depend on values."""
_REDUCTIONS = ("Reduce", "ArgMax", "ArgMin")
_CHOICES: Mapping[str, tuple[int, ...]] = {
    "Where": (0,),
    "Compress": (1,),
    "NonZero": (0,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Expand": (1,),
    "Slice": (1, 2, 4),
    "Tile": (1,),
    "Pad": (1,),
    "ConstantOfShape": (0,),
    "TopK": (1,),
}
"""Operators that decide by values of these inputs."""


def draws(graph: Skeleton) -> str:
    """Which operator gives other numbers each time; empty without one."""
    for node in walk.nodes(reader.load(graph)):
        if node.op_type in RANDOM and node.domain in ("", "ai.onnx"):
            return f"its {_named(node)} draws random numbers"
    return ""


def decides(graph: Skeleton) -> str:
    """Which operator decides for all rows by the values of all; empty without one."""
    model = reader.load(graph)
    nodes = [node for inner in walk.graphs(model.graph) for node in inner.node]
    values = _spread(nodes, {value.name for value in model.graph.input})
    for node in nodes:
        if any(name in values for name in _conditions(node)):
            return f"its {_named(node)} is decided by values, for all rows of a batch at once"
    reducing = (node for node in nodes if node.op_type.startswith(_REDUCTIONS))
    reductions = [node for node in reducing if values.intersection(node.input[:1])]
    # Most graphs have none that matters, whatever its axes: their shapes need not be inferred.
    chosen = _chosen_by(nodes, reductions) and _chosen_by(nodes, _across(model, reductions))
    if chosen:
        return f"its {_named(chosen)} is decided by a sum, a largest value or the like of all rows"
    return ""


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name or node.output[0]}'"


def _conditions(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the conditions of an If or a Loop."""
    if node.op_type == "If":
        yield from node.input[:1]
    elif node.op_type == "Loop":
        yield from node.input[:2]
        yield from (value.name for body in _bodies(node) for value in body.output[:1])


def _chosen_by(
    nodes: Sequence[onnx.NodeProto], reductions: Iterable[onnx.NodeProto]
) -> onnx.NodeProto | None:
    """The first node that decides by values of these reductions."""
    reached = _spread(nodes, {node.output[0] for node in reductions})
    for node in nodes:
        if any(
            name in reached for index in _CHOICES.get(node.op_type, ()) for name in node.input[index:][:1]
        ):
            return node
    return None


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _spread(nodes: Sequence[onnx.NodeProto], start: set[str]) -> set[str]:
    """The names whose values depend on the tensors of ``start``; sizes do not."""
    reached, before = set(start), -1
    while len(reached) != before:  # more than once only around loops: nodes are in order
        before = len(reached)
        for node in nodes:
            bodies = _bodies(node)
            if bodies:
                for source, target in _edges(node, bodies):
                    if source in reached:
                        reached.add(target)
            elif node.op_type not in _SIZES and not reached.isdisjoint(node.input):
                reached.update(node.output)
        reached.discard("")
    return reached


def _edges(node: onnx.NodeProto, bodies: Sequence[onnx.GraphProto]) -> Iterator[tuple[str, str]]:
    """Pairs of names at the border of an If, a Loop or a Scan: the second gets the first's values."""
    for body in bodies:
        outputs = [value.name for value in body.output]
        inputs = [value.name for value in body.input]
        skipped = 1 if node.op_type == "Loop" else 0  # the condition, which no output of the node is
        yield from zip(outputs[skipped:], node.output, strict=False)
        if node.op_type == "Loop":
            yield from zip(node.input, inputs, strict=False)
            yield from zip(outputs, inputs[1:], strict=False)
        elif node.op_type == "Scan":
            yield from zip(node.input, inputs, strict=False)
            yield from zip(outputs, inputs, strict=False)
    if node.op_type == "If":
        yield from ((condition, name) for condition in node.input[:1] for name in node.output)


def _across(model: onnx.ModelProto, reductions: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The reductions that may go along a batch axis."""
    inferred = shape_inference.infer(model) or model
    shapes = {
        value.name: value.type.tensor_type.shape.dim
        for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)
        if value.type.tensor_type.HasField("shape")
    }
    constants = {name: tensor for inner in walk.graphs(model.graph) for name, tensor in walk.constants(inner)}
    for node in reductions:
        dims = shapes.get(node.input[0])
        if dims is not None and (not dims or dims[0].HasField("dim_value")):
            continue  # a scalar, or a first axis that is no batch
        axes = _axes(node, constants)
        if axes is None or 0 in axes or (dims is not None and -len(dims) in axes):
            yield node


def _axes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> set[int] | None:
    """The axes of a reduction; None for all, or if they are not known."""
    for attribute in node.attribute:
        if attribute.name == "axes":
            return set(attribute.ints)
        if attribute.name == "axis":
            return {attribute.i}
    if node.op_type.startswith("Arg"):
        return {0}
    if len(node.input) > 1 and node.input[1] in constants:
        return {int(axis) for axis in numpy_helper.to_array(constants[node.input[1]]).reshape(-1)} or None
    return None
