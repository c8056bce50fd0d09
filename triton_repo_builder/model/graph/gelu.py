"""Gelu by ``Tanh`` where the graph computes it by ``Erf``: for int8 only, whose own loss is larger.

    x / 2 * (1 + erf(x / sqrt(2)))   becomes   x / 2 * (1 + tanh(0.79788 x * (1 + 0.044715 x x)))

They differ by less than 5e-4 (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016). ONNX Runtime makes
one kernel of either (BiasGelu, FastGelu) if constants and order are those below (fast_gelu_fusion.cc).
The second is the faster one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from triton_repo_builder.model.graph import walk

LEAST = -0.1701
"""No Gelu is less."""
CLOSE = 1e-3
"""Relative: half-precision exports round the constants of the formula."""
CONSTANTS = {"slope": 0.7978845834732056, "cubic": 0.044715, "one": 1.0, "half": 0.5}


class _Graph:
    """Producers, consumers and scalar constants by name."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.producer = {output: node for node in graph.node for output in node.output}
        self.consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in (node for inner in walk.graphs(graph) for node in inner.node):
            for name in node.input:
                self.consumers[name].append(node)
        self.outputs = {value.name for inner in walk.graphs(graph) for value in inner.output}
        self.scalars = dict(_scalars(graph))

    def times(self, node: onnx.NodeProto | None, constant: float) -> str:
        """The factor of ``node`` = that times the constant; empty if it is anything else."""
        if node is None or len(node.input) != 2:
            return ""
        if node.op_type == "Mul":
            for mine, other in (node.input, node.input[::-1]):
                if math.isclose(self.scalars.get(mine, math.nan), constant, rel_tol=CLOSE):
                    return str(other)
        if node.op_type != "Div":
            return ""
        divisor = self.scalars.get(node.input[1], math.nan)
        return str(node.input[0]) if math.isclose(divisor, 1 / constant, rel_tol=CLOSE) else ""

    def only(self, name: str, kind: str) -> onnx.NodeProto | None:
        """The one node that reads a tensor, if it is of that kind and nobody else sees the tensor."""
        readers = self.consumers[name]
        if len(readers) != 1 or name in self.outputs:
            return None
        return readers[0] if readers[0].op_type == kind and len(readers[0].output) == 1 else None


def approximate(graph: onnx.GraphProto, prefix: str) -> set[str]:
    """Rewrite each Gelu of the graph itself, not of its subgraphs; returns the names of their outputs.

    New names begin with ``prefix``.
    """
    work = _Graph(graph)
    replaced: dict[str, list[onnx.NodeProto]] = {}
    dropped: set[str] = set()
    for node in graph.node:
        whole = len(node.input) == len(node.output) == 1
        if whole and node.op_type == "Erf" and (match := _match(work, node)):
            source, gone = match
            replaced[gone[-1].output[0]] = list(_nodes(source, gone[-1].output[0], prefix))
            dropped |= {step.output[0] for step in gone}
    if not replaced:
        return set()
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        if not dropped & {*node.output}:
            kept.append(node)
        elif node.output[0] in replaced:
            kept += replaced[node.output[0]]
    del graph.node[:]
    graph.node.extend(kept)
    read = {name for inner in walk.graphs(graph) for node in inner.node for name in node.input}
    read |= {value.name for inner in walk.graphs(graph) for value in inner.output}
    # ONNX Runtime warns of each constant that nothing reads.
    del graph.node[:]
    graph.node.extend(node for node in kept if node.op_type != "Constant" or read & {*node.output})
    for name, value in CONSTANTS.items():
        constant = helper.make_tensor(_constant(prefix, name), TensorProto.FLOAT, [], [value])
        graph.initializer.append(constant)
    return {*replaced}


def _match(graph: _Graph, erf: onnx.NodeProto) -> tuple[str, list[onnx.NodeProto]] | None:
    """(Gelu's input, its nodes that nothing else needs with the last one at the end)."""
    scaled = graph.producer.get(erf.input[0])
    source = graph.times(scaled, math.sqrt(0.5))
    added = graph.only(erf.output[0], "Add")
    if scaled is None or not source or graph.only(scaled.output[0], "Erf") is None or added is None:
        return None
    if not any(math.isclose(graph.scalars.get(name, math.nan), 1, rel_tol=CLOSE) for name in added.input):
        return None
    gone, missing = [scaled, erf, added], {"source", "half"}
    while missing:
        node = graph.only(gone[-1].output[0], "Mul")
        if node is None:
            return None
        other = next((name for name in node.input if name != gone[-1].output[0]), "")
        half = graph.producer.get(other)
        if other == source and "source" in missing:
            missing.remove("source")
        elif "half" in missing and graph.times(node, 0.5):
            missing.remove("half")
        elif missing == {"source", "half"} and half is not None and graph.times(half, 0.5) == source:
            missing.clear()
            if graph.only(other, "Mul") is not None:
                gone.insert(0, half)
        else:
            return None
        gone.append(node)
    return source, gone


def _constant(prefix: str, name: str) -> str:
    """Name of a constant; not below ``prefix`` + "gelu", for exporters call outputs so."""
    return f"{prefix}constants/gelu/{name}"


def _nodes(source: str, output: str, prefix: str) -> Iterator[onnx.NodeProto]:
    """The second formula, in the order that ONNX Runtime fuses."""
    base, constant = f"{prefix}{output}/", {name: _constant(prefix, name) for name in CONSTANTS}
    for kind, first, second, name in (
        ("Mul", source, constant["slope"], f"{base}slope"),
        ("Mul", source, constant["cubic"], f"{base}cubic"),
        ("Mul", f"{base}cubic", source, f"{base}square"),
        ("Add", f"{base}square", constant["one"], f"{base}bend"),
        ("Mul", f"{base}slope", f"{base}bend", f"{base}inner"),
        ("Tanh", f"{base}inner", "", f"{base}tanh"),
        ("Add", f"{base}tanh", constant["one"], f"{base}share"),
        ("Mul", source, constant["half"], f"{base}half"),
        ("Mul", f"{base}half", f"{base}share", output),
    ):
        yield helper.make_node(kind, [first, second] if second else [first], [name], name=name)


def _scalars(graph: onnx.GraphProto) -> Iterator[tuple[str, float]]:
    """Constants of one float, be they initializers or nodes."""
    for name, tensor in walk.constants(graph):
        small = np.prod(tensor.dims, dtype=np.int64) == 1 and len(tensor.dims) <= 1
        if small and tensor.data_type == TensorProto.FLOAT:
            yield name, float(numpy_helper.to_array(tensor).reshape(()))
