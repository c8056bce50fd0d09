"""Memory that a run of a text model takes beside its weights, computed from the sizes in its graph.

ONNX Runtime plans like this: a tensor lives from the node that makes it to the last reader; an output that
may replace an input, or is only another shape of it, takes no memory; memory that is free again waits for the
next tensor of the same size. So a run holds, of every size, as many tensors as ever live at once. The number
is about right (docs/benchmarks/long_attention.md), not a bound: an arena rounds up.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import onnx
from onnx import helper

from triton_repo_builder.model.graph import node_rules, query_blocks
from triton_repo_builder.model.graph.packing.attention_loop import MOST_SCORES
from triton_repo_builder.model.graph.packing.facts import OF_TOKENS, TOKENS, GraphFacts

_LOOKS = {"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"}
"""Another shape of the same numbers."""
_COPIES = {"Where": 2}
"""Further tensors of the output's size that the operator's own code takes (ONNX Runtime's where_op.cc)."""
_IN_PLACE = {*query_blocks.ELEMENTWISE, "Relu", "Gelu", "Erf", "Pow"}


class Peak:
    """The memory of one graph's runs; nothing is known of a damaged graph."""

    def __init__(self, model: onnx.ModelProto, *, blocks: bool, packed: bool = False) -> None:
        """``blocks``: whether attention runs in blocks of queries where it can; ``packed``: without masks."""
        self._model = model
        facts = GraphFacts.of(model) or GraphFacts(onnx.ModelProto())
        regions = query_blocks.find(facts, node_rules.opset(model)) if blocks or packed else ()
        self._blocked = {node.output[0] for region in regions for node in region.nodes[:-1]}
        pairs = {name for name, dims in facts.dims.items() if dims.count(TOKENS) > 1}
        self._none = pairs - self._blocked if packed else set()
        self.attends = any(node.op_type == "Softmax" for node in model.graph.node)
        """Whether the graph has attention, whose work grows with the square of a text's length."""

    def bytes(self, rows: int, tokens: int) -> int:
        """Compute it for a run of ``rows`` with ``tokens`` each."""
        facts = GraphFacts.of(_fixed(self._model, rows, tokens)) or GraphFacts(onnx.ModelProto())
        nodes = facts.graph.node
        owner: dict[str, str] = {}
        last: dict[str, int] = {}
        for place, node in enumerate(nodes):
            if node.op_type in _LOOKS and node.input[0] not in facts.constants:
                owner[node.output[0]] = owner.get(node.input[0], node.input[0])
            for name in node.input:
                last[owner.get(name, name)] = place
        live: dict[str, int] = {}
        held: Counter[int] = Counter()
        copies = 0
        for place, node in enumerate(nodes):
            sizes = {name: self._size(facts, name) for name in node.output if name and name not in owner}
            read = {owner.get(name, name) for name in node.input}
            ending = [name for name in read if last[name] == place and name in live]
            reused = node.op_type in _IN_PLACE and any(live[name] in sizes.values() for name in ending)
            live |= sizes
            alive = Counter(live.values())
            alive[max(sizes.values(), default=0)] -= reused
            held |= alive
            copies = max(copies, _COPIES.get(node.op_type, 0) * max(sizes.values(), default=0))
            for name in ending:
                del live[name]
        return copies + sum(size * count for size, count in held.items())

    def _size(self, facts: GraphFacts, name: str) -> int:
        if name in facts.constants or name in self._none:
            return 0
        # With numbers for the inputs' sizes few sizes are unknown: they count as 1.
        count = prod(dim if isinstance(dim, int) else 1 for dim in facts.dims.get(name, ()))
        count = min(count, MOST_SCORES) if name in self._blocked else count
        return count * _bytes(facts.kinds.get(name, 0))


def _fixed(model: onnx.ModelProto, rows: int, tokens: int) -> onnx.ModelProto:
    """Fix the sizes of the inputs in a copy."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in OF_TOKENS and len(dims) == 2:
            for dim, size in zip(dims, (rows, tokens), strict=True):
                dim.dim_value = size
    return copy


def _bytes(kind: int) -> int:
    """Size of one number of that ONNX type; of FLOAT if there is no such type."""
    try:
        return int(helper.tensor_dtype_to_np_dtype(kind or onnx.TensorProto.FLOAT).itemsize)
    except KeyError:
        return 4
