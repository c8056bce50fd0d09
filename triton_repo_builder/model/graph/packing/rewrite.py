"""Writes the graph without padding, by the layout of its tensors."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

from triton_repo_builder.model.graph import names, reader, walk
from triton_repo_builder.model.graph.packing import tokenwise
from triton_repo_builder.model.graph.packing.attention import FLOATS, Attention
from triton_repo_builder.model.graph.packing.attention_loop import (
    COUNT,
    FIRST,
    GROUPS,
    KEYS,
    MOST_SCORES,
    QUERY,
    STRIDE,
    AttentionLoops,
)
from triton_repo_builder.model.graph.packing.emit import GraphConstants, Nodes
from triton_repo_builder.model.graph.packing.facts import TOKENS
from triton_repo_builder.model.graph.packing.layout import Layout
from triton_repo_builder.model.graph.packing.tokenwise import LEAD
from triton_repo_builder.model.read.skeleton import Skeleton
from triton_repo_builder.repository.tensor_names import ROW_LENGTHS

PLACES, COLUMNS, WIDE = "places", "columns", "wide_places"
"""Row and place of each token, INT64 [tokens, 2]; the place alone; the token of each place in a padded row,
any for padding, INT64 [rows, longest]."""
_BEFORE = f"""
packed (int64[R] {ROW_LENGTHS}) => (int64[N, 2] {PLACES}, int64[N] {COLUMNS}, int64[R, T] {WIDE},
    {", ".join(f"int64[G, 1] {name}" for name in (*KEYS, *QUERY))}, int64 {COUNT}) {{
    most_pairs = Constant <value = int64 {{MOST_PAIRS}}> ()
    zero = Constant <value = int64 {{0}}> ()
    one = Constant <value = int64 {{1}}> ()
    all = Constant <value = int64[1] {{-1}}> ()
    first_axis = Constant <value = int64[1] {{0}}> ()
    second = Constant <value = int64[1] {{1}}> ()
    no_end = Constant <value = int64[1] {{9223372036854775807}}> ()
    into_column = Constant <value = int64[2] {{-1, 1}}> ()
    longest = ReduceMax <keepdims = 0> ({ROW_LENGTHS})
    column = Range (zero, longest, one)
    length_column = Reshape ({ROW_LENGTHS}, into_column)
    inside = Less (column, length_column)
    ends = CumSum ({ROW_LENGTHS}, zero)
    starts = Sub (ends, {ROW_LENGTHS})
{GROUPS}
    first_column = Reshape ({FIRST}, into_column)
    stride_column = Reshape ({STRIDE}, into_column)
    way = Mul (stride_column, column)
    token = Add (first_column, way)
    {WIDE} = Where (inside, token, zero)
    rows_and_columns = NonZero (inside)
    row_by_row = Transpose <perm = [1, 0]> (rows_and_columns)
    token_of_each = GatherND (token, row_by_row)
    token_column = Reshape (token_of_each, into_column)
    {PLACES} = ScatterND (row_by_row, token_column, row_by_row)
    {COLUMNS} = Gather <axis = 1> ({PLACES}, one)
}}"""


def obstacle(graph: Skeleton) -> str:
    """Why the graph cannot run without padding, or gains nothing; empty if it does."""
    return Layout.of(reader.load(graph)).obstacle


def pack(model: onnx.ModelProto) -> None:
    """Rewrite the graph, which has no ``obstacle``; its outputs stay padded.

    The new graph takes ``ROW_LENGTHS`` beside its inputs, whose rows are padded at the end to the longest.
    Neighbouring rows of equal length share a run of attention. ``ValueError`` for an obstacle.
    """
    layout = Layout.of(model)
    if layout.obstacle:
        raise ValueError(layout.obstacle)
    _Writer(layout, names.prefix(model.graph) + "packed/").write()


class _Writer:
    """Nodes of the new graph; names of the old graph stand for padded rows in it."""

    def __init__(self, layout: Layout, prefix: str) -> None:
        self._layout, self._facts = layout, layout.facts
        self._out = Nodes(prefix)
        self._constants = GraphConstants(layout.facts, prefix)
        self._loops = AttentionLoops(self._out, self._constants)
        self._made: set[str] = set()
        self._filled: dict[str, str] = {}
        """A constant of one number → the first tensor that has it for each token."""
        self._same: dict[str, str] = {}
        """Further such tensors → the first."""

    def write(self) -> None:
        layout = self._layout
        heads = max(attention.heads for attention in layout.attentions.values())
        before = onnx.parser.parse_graph(_BEFORE.replace("MOST_PAIRS", str(MOST_SCORES // heads)))
        self._out.nodes += names.prefixed(before.node, {ROW_LENGTHS: ROW_LENGTHS}, self._out.prefix)
        for node in self._facts.graph.node:
            output = node.output[0]
            if layout.packed & {*node.output} and output in layout.leads:
                if output in layout.attentions:
                    self._attention(layout.attentions[output])
                else:
                    self._tokenwise(node)
            elif layout.wide & {*node.output} and output not in layout.leads:
                self._padded(node)
            for name in node.output:
                if name in layout.wide and name in layout.leads:
                    padded = self._out.name(f"wide/{name}")
                    self._out.add("Gather", [self._packed(name), self._out.name(WIDE)], padded, axis=1)
                    self._out.add("Squeeze", [padded, self._constants.sizes(0)], name)
        self._finish()

    def _packed(self, name: str) -> str:
        """The name of a tensor of tokens."""
        return self._out.name(f"of/{self._same.get(name, name)}")

    def _tokenwise(self, node: onnx.NodeProto) -> None:
        if node.op_type == "Expand":
            # Of as many numbers as there are tokens, whatever it was to have the shape of.
            filled = self._filled.setdefault(node.input[0], node.output[0])
            if filled != node.output[0]:
                self._same[node.output[0]] = filled
                return
        shape = tokenwise.shape_of_packed(self._facts, node, self._layout.leads)
        inputs = [name if number and shape else self._tokens(name) for number, name in enumerate(node.input)]
        if node.op_type == "Expand":
            flat = self._packed(self._facts.producer[node.input[1]].input[0])
            inputs[1] = self._out.add("Shape", [flat], self._out.name(f"size/{node.output[0]}"))
        if shape:
            inputs[1] = self._constants.sizes(*shape)
        copy = self._out.copy(node, inputs, [name and self._packed(name) for name in node.output])
        if shape:
            del copy.attribute[:]

    def _tokens(self, name: str) -> str:
        """An input of a node on tokens, by the name that it has there."""
        if name in self._layout.leads:
            return self._packed(name)
        dims = self._facts.dims.get(name, ())
        if name in self._facts.known or name in self._facts.constants or dims[1:LEAD] != (TOKENS,):
            return self._constants.known(name)
        packed = self._packed(name)
        if packed not in self._made:
            self._made.add(packed)
            if dims[0] == 1:
                self._out.add("Gather", [name, self._out.name(COLUMNS)], packed, axis=1)
            else:
                gathered = self._out.add(
                    "GatherND", [name, self._out.name(PLACES)], self._out.name(f"found/{name}")
                )
                self._out.add("Unsqueeze", [gathered, self._constants.sizes(0)], packed)
        return packed

    def _padded(self, node: onnx.NodeProto) -> None:
        """A copy of the node; constants computed from sizes become initializers."""
        inputs = [self._constants.known(name) for name in node.input]
        if node.output[0] in self._facts.unit_sizes and node.input[0] in self._layout.leads:
            inputs = [self._packed(node.input[0])]
        self._out.copy(node, inputs, node.output)

    def _attention(self, attention: Attention) -> None:
        kind = self._facts.kinds[attention.output]
        tokens = {source: self._packed(source) for source in attention.sources}
        self._loops.write(attention, tokens, self._packed(attention.output), kind)

    def _finish(self) -> None:
        graph = self._facts.graph
        del graph.node[:]
        graph.node.extend(self._out.nodes)
        read = {name for inner in walk.graphs(graph) for node in inner.node for name in node.input}
        kept = [tensor for tensor in graph.initializer if tensor.name in read | self._facts.outputs]
        # Of an old file initializers are inputs, too.
        gone = {tensor.name for tensor in graph.initializer} - {tensor.name for tensor in kept}
        inputs = [value for value in graph.input if value.name not in gone]
        del graph.initializer[:]
        del graph.input[:]
        graph.input.extend(inputs)
        graph.initializer.extend(kept)
        graph.initializer.extend(entry for name, entry in self._constants.tensors.items() if name in read)
        outputs = {name for node in graph.node for name in node.output}
        stated = [
            entry
            for entry in graph.value_info
            if entry.name in outputs and entry.name not in self._layout.leads
        ]
        del graph.value_info[:]
        graph.value_info.extend([*stated, *self._sizes(outputs)])
        graph.input.append(helper.make_tensor_value_info(ROW_LENGTHS, TensorProto.INT64, ["R"]))

    def _sizes(self, outputs: set[str]) -> Iterator[onnx.ValueInfoProto]:
        """With three sizes of a sum ONNX Runtime fuses it with the layer norm after it (residual.py)."""
        for name in sorted(self._layout.packed & self._layout.leads.keys()):
            dims, kind = self._facts.dims.get(name, ()), self._facts.kinds.get(name)
            fixed = len(dims) == LEAD + 1 and isinstance(dims[LEAD], int)
            if fixed and kind in FLOATS and self._packed(name) in outputs:
                sizes = [1, self._out.name("N"), dims[LEAD]]
                yield helper.make_tensor_value_info(self._packed(name), kind, sizes)
