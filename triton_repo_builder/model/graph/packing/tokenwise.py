"""Nodes that treat each token by itself, so that all tokens end to end give the same numbers as rows.

A tensor of tokens is [rows, tokens, …], or *flat*, [rows x tokens, …]. Over the tokens of all rows the first
form becomes [1, all tokens, …]. A node gives the same numbers if it touches only the axes after those, with
constants and tensors of tokens. Axes are counted by ``lead``: 2, or 1 for flat tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import prod

import onnx

from triton_repo_builder.model.graph.packing.facts import ROWS, TOKENS, GraphFacts
from triton_repo_builder.model.graph.packing.sizes import Dims, attribute
from triton_repo_builder.model.graph.packing.sizes import axes as axes_of

EACH_NUMBER = {
    "Abs", "Add", "Cast", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "Pow", "Reciprocal",
    "Relu", "Round", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh",
}  # fmt: skip
REDUCTIONS = {
    "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
}  # fmt: skip
PRODUCTS = {"MatMul", "MatMulInteger"}
LEAD = 2
"""The lead of [rows, tokens, …]: two axes."""
Lead = Mapping[str, int]


def lead(facts: GraphFacts, node: onnx.NodeProto, leads: Lead, by_size: Set[str]) -> int:
    """The lead of the outputs of ``node``; 0 if it does not treat each token by itself.

    ``leads`` has the leads of its inputs; ``by_size`` names tensors that depend on sizes alone, which may be
    constants of each place.
    """
    if node.domain not in ("", "ai.onnx"):
        return 0
    if node.op_type == "Expand":
        return _expanded(facts, node, leads)
    input_leads = {leads[name] for name in node.input if name in leads}
    if len(input_leads) != 1:
        return 0
    (first,) = input_leads
    data = node.input[0]
    dims = facts.dims.get(data)
    rank = len(dims) if dims is not None else 0
    rest = [name for name in node.input[1:] if name]
    constant = all(_constant_sizes(facts, name) is not None for name in rest)
    kind = node.op_type
    if kind in EACH_NUMBER:
        return first if _aligned(facts, node, leads, by_size, first) else 0
    if data not in leads or not rank:
        return 0
    if kind in PRODUCTS:
        matrix = facts.dims.get(node.input[1], ())
        return first if constant and len(matrix) == 2 and rank == first + 1 else 0
    if kind == "QuantizeLinear" and first == 1 and not constant:
        return first if attribute(node, "axis", 1) == 0 and all(leads.get(name) == 1 for name in rest) else 0
    if kind in ("QuantizeLinear", "DequantizeLinear"):
        sizes = [_constant_sizes(facts, name) for name in rest]
        return first if all(size is not None and {*size} <= {1} for size in sizes) else 0
    if kind == "Reshape":
        return _reshaped(facts, node, first)
    if not constant:
        return 0
    if kind in ("Softmax", "LogSoftmax", "LayerNormalization"):
        return first if attribute(node, "axis", -1) % rank >= first and _only_output(node) else 0
    if kind in REDUCTIONS:
        axes = axes_of(node, 1, facts.sizes)
        return first if axes and all(axis % rank >= first for axis in axes) else 0
    if kind == "Transpose":
        perm = attribute(node, "perm", [])
        return first if perm[:first] == [*range(first)] else 0
    if kind in ("Unsqueeze", "Squeeze"):
        axes = axes_of(node, 1, facts.sizes) or []
        whole = rank + len(axes) if kind == "Unsqueeze" else rank
        return first if axes and all(axis % whole >= first for axis in axes) else 0
    if kind in ("Split", "Gather"):
        return first if attribute(node, "axis", 0) % rank >= first else 0
    if kind == "Slice":
        axes = axes_of(node, 3, facts.sizes) or []
        return first if axes and all(axis % rank >= first for axis in axes) else 0
    return 0


def shape_of_packed(facts: GraphFacts, node: onnx.NodeProto, leads: Lead) -> list[int] | None:
    """The shape that a ``Reshape`` gives to the tokens of all rows; None for any other node."""
    if node.op_type != "Reshape":
        return None
    rest = [int(size) for size in _rest(facts, node.output[0], leads[node.output[0]]) or []]
    return [1, -1, *rest] if leads[node.output[0]] == LEAD else [-1, *rest]


def _aligned(facts: GraphFacts, node: onnx.NodeProto, leads: Lead, by_size: Set[str], first: int) -> bool:
    """Whether number meets number: tokens have one rank, constants lie along the axes after the lead."""
    ranks = {len(facts.dims[name]) if name in facts.dims else 0 for name in node.input if name in leads}
    if len(ranks) != 1 or ranks == {0}:
        return False
    (rank,) = ranks
    for name in node.input:
        if not name or name in leads:
            continue
        sizes = _constant_sizes(facts, name)
        if name in by_size:
            placed = facts.dims[name]
            if first != LEAD or len(placed) != rank or placed[0] not in (1, ROWS) or placed[1] != TOKENS:
                return False
            continue
        if sizes is None or len(sizes) > rank:
            return False
        along_lead = sizes[: max(0, len(sizes) - rank + first)]
        if not {*along_lead} <= {1}:
            return False
    return True


def _constant_sizes(facts: GraphFacts, name: str) -> Dims | None:
    """None unless it is a constant of known sizes."""
    constant = name in facts.constants or facts.value(name) is not None
    return facts.dims.get(name) if constant else None


def _reshaped(facts: GraphFacts, node: onnx.NodeProto, first: int) -> int:
    """Whether only the axes after the lead change, and which lead there is then."""
    dims = facts.dims.get(node.output[0])
    before = _rest(facts, node.input[0], first)
    if dims is None or before is None:
        return 0
    if dims[:LEAD] == (ROWS, TOKENS):
        after = _rest(facts, node.output[0], LEAD)
        return LEAD if after is not None and prod(after) == prod(before) else 0
    shape = facts.value(node.input[1])
    if shape is None or shape.ndim != 1 or not shape.size or shape[0] != -1:
        return 0
    return 1 if prod(int(size) for size in shape[1:]) == prod(before) and 0 not in shape else 0


def _rest(facts: GraphFacts, name: str, first: int) -> list[int] | None:
    """The sizes after the lead, if all are fixed."""
    dims = facts.dims.get(name)
    if dims is None or len(dims) < first:
        return None
    rest = [size for size in dims[first:] if isinstance(size, int)]
    return rest if len(rest) == len(dims) - first else None


def _expanded(facts: GraphFacts, node: onnx.NodeProto, leads: Lead) -> int:
    """One number for each token: a constant expanded to the shape of a flat tensor of one axis."""
    shape = facts.producer.get(node.input[1])
    if shape is None or shape.op_type != "Shape" or shape.attribute or leads.get(shape.input[0]) != 1:
        return 0
    sizes = _constant_sizes(facts, node.input[0])
    single = sizes is not None and {*sizes} <= {1}
    return 1 if single and len(facts.dims.get(shape.input[0], ())) == 1 else 0


def _only_output(node: onnx.NodeProto) -> bool:
    return len([name for name in node.output if name]) == 1
