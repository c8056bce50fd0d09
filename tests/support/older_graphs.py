"""Graphs of one operator each of which ONNX Runtime 1.19.2 infers less (``operators.toml``, shapes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_onnx import BOOL, FLOAT, constant, model, node, tensor

W = constant("W", FLOAT, [4, 8], [0.1] * 32)
Z = constant("Z", FLOAT, [4], [0.5] * 4)
EINSUM = node("Einsum", ["X", "W"], ["E"], equation="bi,ij->bj")
NODES: dict[str, tuple[list[Any], int]] = {
    "Einsum": ([EINSUM, node("Identity", ["E"], ["Y"])], FLOAT),
    "GreaterOrEqual": ([node("GreaterOrEqual", ["X", "Z"], ["Y"])], BOOL),
    "LessOrEqual": ([node("LessOrEqual", ["X", "Z"], ["Y"])], BOOL),
    "GroupNormalization": ([node("GroupNormalization", ["X", "Z", "Z"], ["Y"], num_groups=2)], FLOAT),
}
"""Nodes from X [batch, 4] to Y, and its type."""


def graph(operator: str, shape: Sequence[int | str] | None, rows: int | str = "batch") -> bytes:
    """A graph that states this shape of Y."""
    nodes, dtype = NODES[operator]
    used = {name for each in nodes for name in each.input}
    return model(
        nodes,
        [tensor("X", [rows, 4])],
        [tensor("Y", shape, dtype)],
        initializers=[weights for weights in (W, Z) if weights.name in used],
        opset=21,
    )


GRAPHS = {
    "einsum": graph("Einsum", ["batch", "width"]),
    "einsum_unstated": graph("Einsum", None),
    "greater": graph("GreaterOrEqual", ["batch", "width"]),
    "greater_unstated": graph("GreaterOrEqual", None),
    "less": graph("LessOrEqual", ["batch", "width"]),
    "less_unstated": graph("LessOrEqual", None),
    "group": graph("GroupNormalization", ["rows", "width"], 2),
    "group_unstated": graph("GroupNormalization", None, 2),
}
"""With sizes that the graph leaves open, and with an output of which it states no shape at all."""
