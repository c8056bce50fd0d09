"""How much memory a run of a text model takes beside its weights, from the sizes in its graph.

Tensors live from the node that makes them to the last that reads them, as ONNX Runtime plans it; what a node
may write over its own input, or only look at in another shape, takes no memory. The number is about right
(docs/design.md has measurements), not a bound: products pack their operands, and an arena rounds up.
"""

from __future__ import annotations

from math import prod

import onnx
from onnx import helper

from triton_repo_builder.graph import query_blocks
from triton_repo_builder.graph.packing.attention_loop import MOST_SCORES
from triton_repo_builder.graph.packing.facts import ROWS, TOKENS, Facts
from triton_repo_builder.graph.packing.sizes import Dims

_LOOKS = {"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"}
"""Another shape of the same numbers."""
_IN_PLACE = {*query_blocks.ELEMENTWISE, "Relu", "Gelu", "Erf", "Pow"}


class Peak:
    """The memory of one graph's runs; nothing is known of a damaged graph."""

    def __init__(self, model: onnx.ModelProto, *, blocks: bool, packed: bool = False) -> None:
        """``blocks``: whether attention runs in blocks of queries where it can; ``packed``: without masks."""
        self._facts = Facts.of(model) or Facts(onnx.ModelProto())
        opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
        regions = query_blocks.find(self._facts, opset) if blocks or packed else ()
        self._blocked = {node.output[0] for region in regions for node in region.nodes[:-1]}
        pairs = {name for name, dims in self._facts.dims.items() if dims.count(TOKENS) > 1}
        self.linear = not pairs
        """Whether nothing grows with the square of a text's length."""
        self._none = self._facts.constants | (pairs - self._blocked if packed else set())

    def bytes(self, rows: int, tokens: int) -> int:
        """Of a run of ``rows`` of that many tokens."""
        nodes = self._facts.graph.node
        owner: dict[str, str] = {}
        last: dict[str, int] = {}
        for place, node in enumerate(nodes):
            if node.op_type in _LOOKS and node.input[0] not in self._facts.constants:
                owner[node.output[0]] = owner.get(node.input[0], node.input[0])
            for name in node.input:
                last[owner.get(name, name)] = place
        live: dict[str, int] = {}
        most = 0
        for place, node in enumerate(nodes):
            made = {
                name: self._size(name, rows, tokens) for name in node.output if name and name not in owner
            }
            read = {owner.get(name, name) for name in node.input}
            ending = [name for name in read if last[name] == place and name in live]
            reused = node.op_type in _IN_PLACE and any(live[name] in made.values() for name in ending)
            live |= made
            most = max(most, sum(live.values()) - (max(made.values(), default=0) if reused else 0))
            for name in ending:
                del live[name]
        return most

    def _size(self, name: str, rows: int, tokens: int) -> int:
        if name in self._none:
            return 0
        dims = self._facts.dims.get(name, ())
        count = prod(_sizes(dims, rows, tokens))
        count = min(count, MOST_SCORES) if name in self._blocked else count
        return count * _bytes(self._facts.kinds.get(name, 0))


def _bytes(kind: int) -> int:
    """Of a number of that ONNX type, of FLOAT if it is none."""
    try:
        return int(helper.tensor_dtype_to_np_dtype(kind or onnx.TensorProto.FLOAT).itemsize)
    except KeyError:
        return 4


def _sizes(dims: Dims, rows: int, tokens: int) -> list[int]:
    """A size that is not known is of rows in the first place, of tokens elsewhere."""
    known = {ROWS: rows, TOKENS: tokens}
    return [
        dim if isinstance(dim, int) else known.get(dim or "", rows if axis == 0 else tokens)
        for axis, dim in enumerate(dims)
    ]
