"""Attention as exporters write it: where a row's tokens meet.

    Reshape, Transpose of query, key and value → MatMul → scale → mask → Softmax → MatMul → Transpose, Reshape

Only this form is found. A bias that depends on places (relative positions, a causal or a sliding mask) is
not, for the mask is left out: it must have no effect without padding, which is computed from a mask of ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx
from onnx import TensorProto

from triton_repo_builder.model.graph.packing.facts import ROWS, TOKENS, GraphFacts
from triton_repo_builder.model.graph.packing.sizes import attribute

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
HEADS = [0, 2, 1, 3]
KEYS = [0, 2, 3, 1]


@dataclass(frozen=True, kw_only=True)
class Operand:
    """Query, key or value: [rows, tokens, heads x width] → [rows, heads, …]."""

    source: str
    heads: int
    width: int
    """Size of a head."""
    perm: tuple[int, ...]
    factors: tuple[onnx.NodeProto, ...] = ()
    """Products and quotients with one number, in order; they may come before or after the transposition."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One attention."""

    query: Operand
    key: Operand
    value: Operand
    inner: tuple[onnx.NodeProto, ...]
    """From the first product to the second, in order, without the mask; each takes the last one's output."""
    output: str
    """[rows, tokens, heads x width]."""

    @property
    def heads(self) -> int:
        """Number of heads, equal for query, key and value."""
        return self.query.heads

    @property
    def width(self) -> int:
        """Size of a head, equal for query, key and value."""
        return self.query.width

    @property
    def sources(self) -> tuple[str, str, str]:
        """Sources of query, key and value, [rows, tokens, heads x width]."""
        return self.query.source, self.key.source, self.value.source


def find(facts: GraphFacts) -> Iterator[Attention]:
    """Every one in the graph."""
    for node in facts.graph.node:
        if node.op_type == "Softmax" and (attention := _attention(facts, node)) is not None:
            yield attention


def _attention(facts: GraphFacts, softmax: onnx.NodeProto) -> Attention | None:
    dims = facts.dims.get(softmax.output[0], ())
    if (
        len(dims) != 4
        or attribute(softmax, "axis", -1) not in (-1, 3)
        or (dims[0], *dims[2:]) != (ROWS, TOKENS, TOKENS)
    ):
        return None
    above: list[onnx.NodeProto] = []
    name = softmax.input[0]
    while (scores := facts.producer.get(name)) is not None and scores.op_type != "MatMul":
        if (rest := _masked(facts, scores)) is None:
            if (rest := _scaled(facts, scores)) is None and not _to_float(scores):
                return None
            rest = rest or scores.input[0]
            above.insert(0, scores)
        name = rest
    below = _second_product(facts, softmax)
    if scores is None or below is None:
        return None
    after, product, output = below
    sides = [_operand(facts, name) for name in (*scores.input, product.input[1])]
    if any(side is None for side in sides):
        return None
    query, key, value = (side for side in sides if side is not None)
    if (query.perm, key.perm, value.perm) != (tuple(HEADS), tuple(KEYS), tuple(HEADS)):
        return None
    heads, width = query.heads, query.width
    if {(side.heads, side.width) for side in (key, value)} != {(heads, width)}:
        return None
    if facts.dims.get(output) != (ROWS, TOKENS, heads * width):
        return None
    return Attention(
        query=query,
        key=replace(key, source=_unbiased(facts, key.source)),
        value=value,
        inner=(scores, *above, softmax, *after, product),
        output=output,
    )


def _masked(facts: GraphFacts, node: onnx.NodeProto) -> str | None:
    """The scores, if all that is done to them here is to mask padding."""
    if node.op_type == "Add":
        for scores, bias in (node.input, node.input[::-1]):
            if facts.uniform.get(bias) == 0 and _equal_sizes(facts, scores, node.output[0]):
                return str(scores)
    if node.op_type == "Where" and (chosen := facts.uniform.get(node.input[0])) is not None:
        scores = node.input[1] if chosen else node.input[2]
        return str(scores) if _equal_sizes(facts, scores, node.output[0]) else None
    return None


def _to_float(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and attribute(node, "to", 0) in FLOATS


def _equal_sizes(facts: GraphFacts, first: str, second: str) -> bool:
    return facts.dims.get(first, ()) == facts.dims.get(second)


def _scaled(facts: GraphFacts, node: onnx.NodeProto) -> str | None:
    """The tensor that the node multiplies or divides by one number; None for other nodes."""
    if node.op_type not in ("Mul", "Div"):
        return None
    sides = (node.input, node.input[::-1]) if node.op_type == "Mul" else (node.input,)
    for tensor, number in sides:
        value = facts.value(number)
        if value is not None and value.size == 1 and facts.value(tensor) is None:
            return str(tensor)
    return None


def _operand(facts: GraphFacts, name: str) -> Operand | None:
    perm = [0, 1, 2, 3]
    factors: list[onnx.NodeProto] = []
    while (node := facts.producer.get(name)) is not None:
        if node.op_type == "Transpose":
            step = attribute(node, "perm", [3, 2, 1, 0])
            perm = [step[place] for place in perm]
        elif node.op_type == "Reshape" and (swapped := _swapped(facts, node)) is not None:
            perm = [(0, 1, 3, 2)[place] for place in perm]
            name = swapped
            continue
        elif node.op_type == "Reshape":
            dims, whole = facts.dims.get(node.output[0], ()), facts.dims.get(node.input[0], ())
            if len(dims) != 4 or len(whole) != 3 or dims[:2] != (ROWS, TOKENS) or whole[:2] != (ROWS, TOKENS):
                return None
            heads, width = dims[2:]
            if not isinstance(heads, int) or not isinstance(width, int) or whole[2] != heads * width:
                return None
            return Operand(
                source=node.input[0], heads=heads, width=width, perm=tuple(perm), factors=tuple(factors)
            )
        elif (rest := _scaled(facts, node)) is not None:
            factors.insert(0, node)
            name = rest
            continue
        else:
            return None
        name = node.input[0]
    return None


def _swapped(facts: GraphFacts, last: onnx.NodeProto) -> str | None:
    """The tensor whose last two axes are swapped, with rows and heads joined to one axis in between.

    So torch's exporter writes ``scaled_dot_product_attention``: Reshape, Transpose of three axes, Reshape.
    """
    turn = facts.producer.get(last.input[0])
    first = facts.producer.get(turn.input[0]) if turn is not None else None
    if turn is None or first is None or (first.op_type, turn.op_type) != ("Reshape", "Transpose"):
        return None
    if attribute(turn, "perm", []) != [0, 2, 1]:
        return None
    whole, joined, back = (
        facts.dims.get(name, ()) for name in (first.input[0], first.output[0], last.output[0])
    )
    if len(whole) != 4 or len(joined) != 3 or None in whole or joined[1:] != whole[2:]:
        return None
    return str(first.input[0]) if back == (*whole[:2], whole[3], whole[2]) else None


def _unbiased(facts: GraphFacts, key: str) -> str:
    """The key without its bias: that adds the same to all scores of a query, which softmax does not see."""
    node = facts.producer.get(key)
    if node is None or node.op_type != "Add":
        return key
    for tensor, bias in (node.input, node.input[::-1]):
        constant = bias in facts.constants and len(facts.dims.get(bias, ())) == 1
        if constant and _equal_sizes(facts, tensor, key):
            return str(tensor)
    return key


def _second_product(
    facts: GraphFacts, softmax: onnx.NodeProto
) -> tuple[list[onnx.NodeProto], onnx.NodeProto, str] | None:
    """Nodes between the softmax and the second product, that product, and the attention's output."""
    after: list[onnx.NodeProto] = []
    name = softmax.output[0]
    while True:
        readers = facts.takers(name)
        kinds = sorted(node.op_type for node in readers)
        if kinds == ["IsNaN", "Where"]:
            test, choice = sorted(readers, key=lambda node: node.op_type)
            if (
                choice.input[0] != test.output[0]
                or choice.input[2] != name
                or facts.value(choice.input[1]) is None
            ):
                return None
            name = choice.output[0]  # a row that is masked as a whole: none is, without padding
        elif kinds == ["Cast"] and _to_float(readers[0]):
            after.append(readers[0])
            name = readers[0].output[0]
        elif kinds == ["MatMul"] and readers[0].input[0] == name:
            product = readers[0]
            break
        else:
            return None
    turned = facts.takers(product.output[0])
    if [node.op_type for node in turned] != ["Transpose"]:
        return None
    if attribute(turned[0], "perm", []) != HEADS:
        return None
    joined = facts.takers(turned[0].output[0])
    if [node.op_type for node in joined] != ["Reshape"] or joined[0].input[0] != turned[0].output[0]:
        return None
    return after, product, joined[0].output[0]
