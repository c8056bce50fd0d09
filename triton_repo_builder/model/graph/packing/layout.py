"""Which tensors are tokens, end to end, and which padded rows; some are needed in both forms.

A tensor of tokens that a node on padded rows reads is laid out in rows, with the numbers of some token in the
places of padding, which the graph must mask. So only two kinds of nodes may read it: nodes that pick places
of it (``PICKS``), and nodes that combine it with padded data, as a mask, before any operator runs over the
places of a row. No node may read tensors of tokens before attention: embeddings there may mask the padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import onnx

from triton_repo_builder.model.graph import node_rules, walk
from triton_repo_builder.model.graph.packing import attention, sizes, tokenwise
from triton_repo_builder.model.graph.packing.attention import Attention
from triton_repo_builder.model.graph.packing.attention_loop import NEEDED_OPSET
from triton_repo_builder.model.graph.packing.facts import ROWS, TOKENS, GraphFacts
from triton_repo_builder.model.graph.packing.tokenwise import LEAD

HEAVY = {"MatMul", "MatMulInteger", "Gemm", "Conv", "Einsum", "Softmax", "LayerNormalization"}
"""Not worth it if one of these still runs on padded tokens."""
OF_SIZES = {"Shape", "Size"}
PICKS = {"Gather", "GatherND", "GatherElements", "Slice"}
MOVES = {"Cast", "Identity", "Unsqueeze", "Squeeze", "Transpose", "Reshape"}
COMBINES = {"Add", "Div", "Mul", "Sub", "Where"}
COUNTS = {"NonZero", "Unique", "Compress"}
"""Operators whose output sizes depend on data."""


@dataclass
class Layout:
    """Form of each tensor of one graph: packed tokens, padded rows, or both."""

    facts: GraphFacts
    leads: dict[str, int] = field(default_factory=dict)
    """Tensors of tokens, with their leads (``tokenwise.py``)."""
    attentions: dict[str, Attention] = field(default_factory=dict)
    """Attentions by output."""
    attended: set[str] = field(default_factory=set)
    """Tensors of tokens that attention comes before."""
    by_size: set[str] = field(default_factory=set)
    """Padded ones of known sizes that depend on sizes alone: the same for all rows that are as long."""
    packed: set[str] = field(default_factory=set)
    """Tensors needed as tokens."""
    wide: set[str] = field(default_factory=set)
    """Tensors needed on padded rows."""
    from_request: set[str] = field(default_factory=set)
    """Padded tensors that depend on the content of a request, not only on its length."""
    unmasked: set[str] = field(default_factory=set)
    """Padded ones that are a tensor of tokens, only moved."""
    obstacle: str = ""
    """Why the graph cannot run without padding, or gains nothing; empty if it does."""

    @classmethod
    def of(cls, model: onnx.ModelProto) -> Layout:
        """The layout of ``model``'s graph, which may be a skeleton."""
        if obstacle := _obstacle(model):
            return cls(facts=GraphFacts(onnx.ModelProto()), obstacle=obstacle)
        facts = GraphFacts.of(model)
        if facts is None:
            return cls(facts=GraphFacts(onnx.ModelProto()), obstacle="the graph is damaged")
        layout = cls(facts=facts)
        layout._assign(attention.find(layout.facts))
        if layout.attentions:
            layout._need()
        else:
            layout.obstacle = "no attention of a known form"
        return layout

    def _assign(self, attentions: Iterable[Attention]) -> None:
        facts = self.facts
        by_output = {
            attention.output: attention for attention in attentions if facts.kinds.get(attention.output)
        }
        self.from_request |= facts.inputs
        counted: set[str] = set()
        for node in facts.graph.node:
            output = node.output[0]
            attention = by_output.get(output)
            if attention and all(self.leads.get(name) == LEAD for name in attention.sources):
                self.leads[output], self.attentions[output] = LEAD, attention
                self.attended.add(output)
                continue
            if all(name in facts.constants or name in facts.known for name in node.output):
                continue
            lead = LEAD if self._looks_up(node) else tokenwise.lead(facts, node, self.leads, self.by_size)
            read, written = {*node.input}, {*filter(None, node.output)}
            if lead:
                self.leads |= dict.fromkeys(written, lead)
                self.attended |= written if self._is_attended(node) else set()
                continue
            if node.op_type in COUNTS or counted & read:
                counted |= written
            data = any(name in self.from_request or name in self.leads for name in read)
            if (data and node.op_type not in OF_SIZES) or counted & read:
                self.from_request |= written
            else:
                self.by_size |= written & facts.dims.keys()

    def _is_attended(self, node: onnx.NodeProto) -> bool:
        """Whether the result depends on attention.

        A sum with embeddings does; a product may only mask them. One number expanded to all tokens does.
        """
        if node.op_type == "Expand":
            return True
        of_tokens = {name for name in node.input if name in self.leads}
        return bool(of_tokens & self.attended) and (node.op_type == "Add" or of_tokens <= self.attended)

    def _looks_up(self, node: onnx.NodeProto) -> bool:
        """Rows of a constant table by ids: where tokens begin."""
        facts = self.facts
        if node.op_type != "Gather" or node.domain not in node_rules.ONNX:
            return False
        table, ids = node.input
        dims = facts.dims.get(ids, ())
        if table not in facts.constants or ids in facts.constants or ids in self.leads:
            return False
        of_each = len(dims) == LEAD and dims[0] in (1, ROWS) and dims[1] == TOKENS
        return of_each and sizes.attribute(node, "axis", 0) == 0

    def _need(self) -> None:
        """Collect what the outputs need; sets ``obstacle`` if the graph cannot provide it."""
        todo = [(value.name, False) for value in self.facts.graph.output]
        while todo and not self.obstacle:
            name, as_tokens = todo.pop()
            needed = self.packed if as_tokens else self.wide
            if name in needed or (name in self.facts.known and name not in self.facts.outputs):
                continue
            needed.add(name)
            if as_tokens or name not in self.leads:
                todo += self._inputs(name, as_tokens)
            elif self.leads[name] != LEAD or self.facts.dims.get(name, ())[:1] != (ROWS,):
                self.obstacle = f"'{name}' is read as no tensor of rows"
            else:
                todo.append((name, True))
        if not self.obstacle:
            self._check_masks()
        if not self.obstacle and not self.attentions.keys() & self.packed:
            self.obstacle = "no output depends on attention"

    def _inputs(self, name: str, as_tokens: bool) -> Iterator[tuple[str, bool]]:
        node = self.facts.producer.get(name)
        if as_tokens and (attention := self.attentions.get(name)):
            yield from ((source, True) for source in attention.sources)
        elif node is not None:
            if not as_tokens:
                self._check(node)
            for place, source in enumerate(node.input):
                if as_tokens and place == 1 and node.op_type == "Expand":
                    yield self.facts.producer[source].input[0], True
                elif not as_tokens and name in self.facts.unit_sizes and source in self.leads:
                    yield source, True
                elif source and not (as_tokens and place == 1 and node.op_type == "Reshape"):
                    yield source, as_tokens and source in self.leads

    def _check(self, node: onnx.NodeProto) -> None:
        """Set ``obstacle`` if a node on padded rows is too costly, or reads tokens before attention."""
        for name in node.output:
            if node.op_type in HEAVY and TOKENS in self.facts.dims.get(name, ()):
                self.obstacle = f"{node.op_type} '{node.name}' runs on padded tokens"
        bare = [name for name in node.input if name in self.leads and name not in self.attended]
        if bare and node.op_type not in OF_SIZES:
            self.obstacle = f"'{bare[0]}' is read before attention"

    def _check_masks(self) -> None:
        """Tensors of tokens that are laid out on padded rows must be masked before an operator runs over the
        places of a row."""
        for node in self.facts.graph.node:
            if not self.wide & {*node.output} or node.output[0] in self.leads:
                continue
            read = {name for name in node.input if name in self.leads or name in self.unmasked}
            if not read or node.op_type in OF_SIZES | PICKS:
                continue
            masked = node.op_type in COMBINES and self.from_request & {*node.input} - read
            if node.op_type in MOVES:
                self.unmasked |= {*node.output}
            elif not masked:
                self.obstacle = f"{node.op_type} '{node.name}' reads tokens that nothing masks"


def _obstacle(model: onnx.ModelProto) -> str:
    """Why the graph is not analysed; empty if it is."""
    opset = node_rules.opset(model)
    if opset < NEEDED_OPSET:
        return f"opset {opset} has no loop that carries a sequence"
    if model.functions or any(inner is not model.graph for inner in walk.graphs(model.graph)):
        return "the graph has functions, branches or loops"
    return node_rules.damaged(model)
