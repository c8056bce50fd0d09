"""Attention over long texts in blocks of queries, for graphs that run on padded rows.

    q · kᵀ → scale, bias, mask → Softmax → · v

The scores take memory with the square of a text's length. Each of these steps computes a query, a place of
the second last axis, from this place alone: products by their first operand, elementwise operators, a softmax
along the last axis. So the steps may run one block of queries after the other and give the same numbers. An
``If`` runs blocks only for long texts: short texts run as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from triton_repo_builder.model.graph import names, node_rules
from triton_repo_builder.model.graph.packing.attention_loop import LEAST_PLACES, MOST_SCORES, NEEDED_OPSET
from triton_repo_builder.model.graph.packing.emit import GraphConstants, Nodes
from triton_repo_builder.model.graph.packing.facts import GraphFacts
from triton_repo_builder.model.graph.packing.sizes import attribute

ELEMENTWISE = {
    "Add", "Sub", "Mul", "Div", "Where", "Cast", "Tanh", "IsNaN", "Min", "Max", "Clip", "Identity", "Neg",
    "Sqrt", "Not", "And", "Or", "Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual",
}  # fmt: skip
QUERIES = 2
"""The axis of queries, counted from the end."""


@dataclass(frozen=True)
class Region:
    """One attention: nodes in the graph's order, from the products of scores to the one with the values."""

    nodes: tuple[onnx.NodeProto, ...]
    sliced: tuple[str, ...]
    """Tensors that it reads by query, of rank 2 and more; one for all queries at once stays whole."""
    scores: onnx.NodeProto
    """The first product."""

    @property
    def output(self) -> str:
        """[…, queries, width]."""
        return str(self.nodes[-1].output[0])


def find(facts: GraphFacts, opset: int) -> Iterator[Region]:
    """Every one in the graph; none of an opset that has no such loop."""
    if opset < NEEDED_OPSET:
        return
    for node in facts.graph.node:
        if node.op_type == "Softmax" and (region := _region(facts, node)) is not None:
            yield region


def _region(facts: GraphFacts, softmax: onnx.NodeProto) -> Region | None:
    rank = len(facts.dims.get(softmax.output[0], ()))
    if rank <= QUERIES or attribute(softmax, "axis", -1) not in (-1, rank - 1):
        return None
    inside = {softmax.output[0]: softmax}
    last = _forward(facts, softmax, inside)
    if last is None:
        return None
    _backward(facts, inside, last)
    nodes = tuple(node for node in facts.graph.node if node.output and node.output[0] in inside)
    scores = next((node for node in nodes if node.op_type == "MatMul" and node is not last), None)
    if scores is None or nodes[-1] is not last:
        return None
    if any(node.op_type == "MatMul" and node.input[1] in inside for node in nodes):
        return None  # all of it is read there, not a block
    sliced: dict[str, None] = {}
    for node in nodes:
        for name in _by_query(node):
            dims = facts.dims.get(name)
            if name in inside or not name:
                continue
            if dims is None:
                return None
            if len(dims) >= QUERIES and dims[-QUERIES] != 1:
                sliced[name] = None
    return Region(nodes=nodes, sliced=tuple(sliced), scores=scores)


def _by_query(node: onnx.NodeProto) -> list[str]:
    """Inputs whose second last axis is the output's."""
    return list(node.input[:1] if node.op_type == "MatMul" else node.input)


def _forward(
    facts: GraphFacts, softmax: onnx.NodeProto, inside: dict[str, onnx.NodeProto]
) -> onnx.NodeProto | None:
    """The product with the values, if all that reads the softmax leads to it; the nodes between are added."""
    todo, last = [softmax.output[0]], None
    while todo:
        name = todo.pop()
        readers = facts.readers.get(name, [])
        if name in facts.outputs or not readers:
            return None
        for node in readers:
            if node.op_type == "MatMul" and node.input[0] == name != node.input[1] and last in (None, node):
                last = node
                inside[node.output[0]] = node
            elif node.op_type in ELEMENTWISE and len(node.output) == 1:
                if node.output[0] not in inside:
                    inside[node.output[0]] = node
                    todo.append(node.output[0])
            else:
                return None
    return last


def _backward(facts: GraphFacts, inside: dict[str, onnx.NodeProto], last: onnx.NodeProto) -> None:
    """Add nodes that only these nodes read, up to the products of scores."""
    todo = [node for node in inside.values() if node is not last]
    while todo:
        for name in _by_query(todo.pop()):
            node = facts.producer.get(name)
            if node is None or name in inside or name in facts.outputs or len(node.output) != 1:
                continue
            readers = {reader.output[0] for reader in facts.readers[name]}
            wide = len(facts.dims.get(name, ())) > QUERIES
            if wide and readers <= inside.keys() and node.op_type in (*ELEMENTWISE, "MatMul"):
                inside[name] = node
                if node.op_type != "MatMul":
                    todo.append(node)


def write(model: onnx.ModelProto) -> None:
    """Put every attention of the graph behind an ``If``: plain for short rows, in blocks for long ones."""
    facts = GraphFacts.of(model)
    ids = next((name for name in ("input_ids", "attention_mask") if facts and name in facts.inputs), "")
    regions = list(find(facts, node_rules.opset(model))) if facts and ids else []
    if facts and regions:
        _Writer(facts, names.prefix(model.graph) + "blocks/").write(ids, regions)


class _Writer:
    def __init__(self, facts: GraphFacts, prefix: str) -> None:
        self._facts, self._constants = facts, GraphConstants(facts, prefix)
        self._out = Nodes(prefix)

    def write(self, ids: str, regions: list[Region]) -> None:
        graph, ends = self._facts.graph, {region.output: region for region in regions}
        inside = {node.output[0] for region in regions for node in region.nodes}
        self._is_long(ids, max(self._heads(region) for region in regions))
        for node in list(graph.node):
            if node.output and node.output[0] in ends:
                self._choice(ends[node.output[0]])
            elif not node.output or node.output[0] not in inside:
                self._out.nodes.append(node)
        del graph.node[:]
        graph.node.extend(self._out.nodes)
        graph.initializer.extend(self._constants.tensors.values())
        kept = [value for value in graph.value_info if value.name not in inside or value.name in ends]
        del graph.value_info[:]
        graph.value_info.extend(kept)

    def _heads(self, region: Region) -> int:
        """Scores for each pair of tokens of a row, if that is known."""
        heads = 1
        for dim in self._facts.dims.get(region.scores.output[0], ())[1:-QUERIES]:
            heads *= dim if isinstance(dim, int) else 1
        return heads

    def _is_long(self, ids: str, heads: int) -> None:
        """Once for the graph: whether the scores of these rows are more than a run should have."""
        add, name, constants = self._out.add, self._out.name, self._constants
        add("Shape", [ids], name("shape"))
        add("Gather", [name("shape"), constants.sizes(1)], name("places"))
        add("ReduceProd", [name("shape")], name("tokens"), keepdims=0)
        add("Mul", [name("tokens"), name("places")], name("pairs"))
        add("Less", [constants.sizes(MOST_SCORES // heads), name("pairs")], name("is_long"))

    def _choice(self, region: Region) -> None:
        base = self._out.name(f"{region.output}/")
        kind = self._facts.kinds.get(region.output, TensorProto.FLOAT)
        branches = {
            "then_branch": self._blocks(region, base, kind),
            "else_branch": self._plain(region, f"{base}plain/", kind),
        }
        self._out.add("If", [self._out.name("is_long")], region.output, **branches)

    def _plain(self, region: Region, prefix: str, kind: int) -> onnx.GraphProto:
        nodes = Nodes(prefix)
        _copy(nodes, region, {})
        output = helper.make_tensor_value_info(nodes.name(region.output), kind, None)
        return helper.make_graph(nodes.nodes, f"{prefix}plain", [], [output])

    def _blocks(self, region: Region, base: str, kind: int) -> onnx.GraphProto:
        nodes, constants = Nodes(f"{base}long/"), self._constants
        name, add = nodes.name, nodes.add
        query, key = region.scores.input
        add("Shape", [query], name("shape"))
        add("Gather", [name("shape"), constants.sizes(-QUERIES)], name("queries"))
        add("Slice", [name("shape"), constants.sizes(0), constants.sizes(-1)], name("lines"))
        add("ReduceProd", [name("lines")], name("line_count"))
        add("Shape", [key], name("key_shape"))
        add("Gather", [name("key_shape"), constants.sizes(-1)], name("keys"))
        add("Mul", [name("line_count"), name("keys")], name("scores"))
        add("Div", [name("scores"), constants.sizes(MOST_SCORES)], name("whole"))
        add("Add", [name("whole"), constants.sizes(1)], name("wanted"))
        add("Div", [name("queries"), constants.sizes(LEAST_PLACES)], name("possible"))
        add("Max", [name("possible"), constants.sizes(1)], name("most"))
        add("Min", [name("wanted"), name("most")], name("count_1d"))
        add("Squeeze", [name("count_1d")], name("count"))
        add("SequenceEmpty", [], name("none"), dtype=kind)
        body = self._body(region, nodes.prefix, kind)
        add("Loop", [name("count"), constants.true(), name("none")], name("parts"), body=body)
        add("ConcatFromSequence", [name("parts")], name("joined"), axis=-QUERIES)
        output = helper.make_tensor_value_info(name("joined"), kind, None)
        return helper.make_graph(nodes.nodes, f"{base}long", [], [output])

    def _body(self, region: Region, outer: str, kind: int) -> onnx.GraphProto:
        nodes, constants = Nodes(f"{outer}block/"), self._constants
        name, add = nodes.name, nodes.add
        for end, number in (("from", "number"), ("to", "next")):
            if end == "to":
                add("Add", [name("number"), constants.sizes(1)], name("next"))
            add("Mul", [name(number), f"{outer}queries"], name(f"share_{end}"))
            add("Div", [name(f"share_{end}"), f"{outer}count_1d"], name(end))
        moved = {tensor: self._slice(nodes, tensor) for tensor in region.sliced}
        _copy(nodes, region, moved)
        add("SequenceInsert", [name("before"), name(region.output)], name("after"))
        add("Identity", [name("go_on")], name("goes_on"))
        parts = [helper.make_tensor_sequence_value_info(name(end), kind, None) for end in ("before", "after")]
        number = helper.make_tensor_value_info(name("number"), TensorProto.INT64, [])
        go_on, goes_on = (
            helper.make_tensor_value_info(name(scalar), TensorProto.BOOL, [])
            for scalar in ("go_on", "goes_on")
        )
        return helper.make_graph(nodes.nodes, f"{outer}block", [number, go_on, parts[0]], [goes_on, parts[1]])

    def _slice(self, nodes: Nodes, tensor: str) -> str:
        """A block of its queries; the whole if the graph's run has one for all of them."""
        constants, base = self._constants, nodes.name(f"of/{tensor}/")
        nodes.add("Shape", [tensor], f"{base}shape")
        nodes.add("Gather", [f"{base}shape", constants.sizes(-QUERIES)], f"{base}queries")
        nodes.add("Equal", [f"{base}queries", constants.sizes(1)], f"{base}is_one")
        nodes.add("Where", [f"{base}is_one", constants.sizes(0), nodes.name("from")], f"{base}from")
        nodes.add("Where", [f"{base}is_one", constants.sizes(1), nodes.name("to")], f"{base}to")
        bounds = [f"{base}from", f"{base}to", constants.sizes(-QUERIES)]
        return nodes.add("Slice", [tensor, *bounds], f"{base}block")


def _copy(nodes: Nodes, region: Region, moved: dict[str, str]) -> None:
    """The region's nodes; products read the second operand as a whole."""
    inside = {node.output[0] for node in region.nodes}
    for node in region.nodes:
        by_query = len(_by_query(node))
        inputs = [
            nodes.name(name) if name in inside else moved.get(name, name) if place < by_query else name
            for place, name in enumerate(node.input)
        ]
        nodes.copy(node, inputs, [nodes.name(node.output[0])])
