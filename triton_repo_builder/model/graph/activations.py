"""Which operator gives an output its numbers, also where an exporter wrote it in its parts.

A graph that ends in a softmax must not get a second one. Exporters of TensorFlow, JAX and Paddle, and models
that compute it by hand, have ``exp(x) / sum(exp(x))`` or ``1 / (1 + exp(-x))`` in its place.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

PASSES = (
    "Identity",
    "Cast",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "QuantizeLinear",
    "DequantizeLinear",
)
"""Operators that copy numbers. Static int8 puts its quantisation steps behind every operator."""
Makers = Mapping[str, onnx.NodeProto]


def made_by(graph: onnx.GraphProto, outputs: set[str]) -> dict[str, str]:
    """The operator that computes each output: not one that only copies it, or writes it in another type."""
    makers = {name: node for node in graph.node for name in node.output}
    sources = {output: _maker(makers, output) for output in outputs & set(makers)}
    return {
        name: _decomposed(node, makers) or node.op_type for name, node in sources.items() if node is not None
    }


def _maker(makers: Makers, name: str) -> onnx.NodeProto | None:
    """The node that computes a tensor; None for inputs and initializers."""
    node = makers.get(name)
    for _ in makers:  # a damaged graph may be a circle
        if node is None or node.op_type not in PASSES or not node.input or node.input[0] not in makers:
            break
        node = makers[node.input[0]]
    return node


def _decomposed(node: onnx.NodeProto, makers: Makers) -> str:
    """``Softmax`` or ``Sigmoid`` where the graph has it in its parts; else empty."""
    if node.op_type == "Reciprocal" and node.input:
        return "Sigmoid" if _is_one_plus_exp(_maker(makers, node.input[0]), makers) else ""
    if node.op_type not in ("Div", "Mul") or len(node.input) != 2:
        return ""
    above, below = (_maker(makers, name) for name in node.input)
    if node.op_type == "Mul":  # by the reciprocal of the divisor, on either side
        if above is not None and above.op_type == "Reciprocal":
            above, below = below, above
        if below is None or below.op_type != "Reciprocal" or not below.input:
            return ""
        below = _maker(makers, below.input[0])
    if below is None or not below.input:
        return ""
    if below.op_type == "ReduceSum" and above is not None and above.op_type == "Exp":
        return "Softmax" if _maker(makers, below.input[0]) is above else ""
    return "Sigmoid" if above is None and _is_one_plus_exp(below, makers) else ""


def _is_one_plus_exp(node: onnx.NodeProto | None, makers: Makers) -> bool:
    """Whether a node adds ``exp(-x)`` to a constant. In every known form that constant is 1."""
    if node is None or node.op_type != "Add":
        return False
    powers = [power for name in node.input if (power := _maker(makers, name)) and power.op_type == "Exp"]
    return any((below := _maker(makers, power.input[0])) and below.op_type == "Neg" for power in powers)
