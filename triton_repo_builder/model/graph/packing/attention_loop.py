"""Attention in a loop over groups of rows: neighbours of one length form a group.

Nothing is padded, so nothing is masked. The groups are known from the lengths of the rows (``GROUPS``). The
tokens of a group lie place by place, first those of all rows' first place: heads of all rows are then strides
of one matrix product (``transBatchA`` and ``transBatchB`` of ONNX Runtime's FusedMatMul), and of four
transpositions it carries out the last alone.

The scores of a group of long rows would take memory with the square of their length. So the loop takes its
queries in blocks of places, each beside all its keys: the scores of one run are at most ``MOST_SCORES``.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from triton_repo_builder.model.graph.packing.attention import Attention, Operand
from triton_repo_builder.model.graph.packing.emit import GraphConstants, Nodes
from triton_repo_builder.repository.tensor_names import ROW_LENGTHS

NEEDED_OPSET = 13
"""``Loop`` carries a sequence."""
COUNT = "run_count"
"""How many runs attention has: the blocks of all groups."""
STARTS, ENDS, LENGTHS = "key_starts", "key_ends", "key_places"
"""Keys of each run: the first token, the one after the last, how many of each row. INT64 [runs, 1]."""
QUERY_STARTS, QUERY_ENDS, QUERY_LENGTHS = "query_starts", "query_ends", "query_places"
"""Queries of each run, likewise."""
KEYS, QUERY = (STARTS, ENDS, LENGTHS), (QUERY_STARTS, QUERY_ENDS, QUERY_LENGTHS)
MOST_SCORES = 1 << 23
"""Scores of a run, all heads together: 32 MiB in float32."""
LEAST_PLACES = 16
"""Smallest block: with fewer places the keys are read too often, and a single one sums in another order."""
FIRST, STRIDE = "first_token", "token_stride"
"""Each row's first token, and the distance to its next one, the rows of its group: INT64 [rows]."""
GROUPS = f"""
    but_last = Slice ({ROW_LENGTHS}, first_axis, all)
    previous = Concat <axis = 0> (all, but_last)
    goes_on = Equal ({ROW_LENGTHS}, previous)
    begins = Not (goes_on)
    begins_2d = NonZero (begins)
    first_rows = Reshape (begins_2d, all)
    group_start = Gather (starts, first_rows)
    group_size = Gather ({ROW_LENGTHS}, first_rows)
    next_start = Slice (group_start, second, no_end)
    total = Slice (ends, all, no_end)
    group_end = Concat <axis = 0> (next_start, total)
    begins_64 = Cast <to = 7> (begins)
    begun = CumSum (begins_64, zero)
    group_number = Sub (begun, one)
    later_first_rows = Slice (first_rows, second, no_end)
    row_count_1d = Shape ({ROW_LENGTHS})
    end_rows = Concat <axis = 0> (later_first_rows, row_count_1d)
    group_rows = Sub (end_rows, first_rows)
    {STRIDE} = Gather (group_rows, group_number)
    row_count = Squeeze (row_count_1d)
    row_number = Range (zero, row_count, one)
    first_row = Gather (first_rows, group_number)
    row_in_group = Sub (row_number, first_row)
    first_of_group = Gather (group_start, group_number)
    {FIRST} = Add (first_of_group, row_in_group)
    least_places = Constant <value = int64 {{{LEAST_PLACES}}}> ()
    token_pairs = Mul (group_size, group_size)
    pairs = Mul (token_pairs, group_rows)
    before_last = Sub (pairs, one)
    whole_blocks = Div (before_last, most_pairs)
    wanted_blocks = Add (whole_blocks, one)
    possible_blocks = Div (group_size, least_places)
    at_least_one = Max (possible_blocks, one)
    blocks = Min (wanted_blocks, at_least_one)
    blocks_through = CumSum (blocks, zero)
    blocks_before = Sub (blocks_through, blocks)
    {COUNT} = ReduceSum <keepdims = 0> (blocks)
    run = Range (zero, {COUNT}, one)
    run_column = Reshape (run, into_column)
    in_this_group = Less (run_column, blocks_through)
    beyond = Not (in_this_group)
    beyond_64 = Cast <to = 7> (beyond)
    group_of_run = ReduceSum <keepdims = 0> (beyond_64, second)
    first_block = Gather (blocks_before, group_of_run)
    blocks_of_run = Gather (blocks, group_of_run)
    size_of_run = Gather (group_size, group_of_run)
    rows_of_run = Gather (group_rows, group_of_run)
    start_of_run = Gather (group_start, group_of_run)
    end_of_run = Gather (group_end, group_of_run)
    block = Sub (run, first_block)
    next_block = Add (block, one)
    share = Mul (block, size_of_run)
    next_share = Mul (next_block, size_of_run)
    from_place = Div (share, blocks_of_run)
    to_place = Div (next_share, blocks_of_run)
    block_places = Sub (to_place, from_place)
    from_way = Mul (from_place, rows_of_run)
    to_way = Mul (to_place, rows_of_run)
    from_token = Add (start_of_run, from_way)
    to_token = Add (start_of_run, to_way)
    {STARTS} = Reshape (start_of_run, into_column)
    {ENDS} = Reshape (end_of_run, into_column)
    {LENGTHS} = Reshape (size_of_run, into_column)
    {QUERY_STARTS} = Reshape (from_token, into_column)
    {QUERY_ENDS} = Reshape (to_token, into_column)
    {QUERY_LENGTHS} = Reshape (block_places, into_column)
"""
OF_PLACES = (1, 0, 2, 3)
"""Axes of [places, rows, heads, width] where the user's graph has [rows, places, heads, width]."""
BY_PLACE = (2, 0, 1, 3)
"""[rows, heads, places, width] → [places, rows, heads, width]."""


class AttentionLoops:
    """Writer of attention among the nodes of a graph."""

    def __init__(self, nodes: Nodes, constants: GraphConstants) -> None:
        self._nodes, self._constants = nodes, constants
        self._made: set[str] = set()

    def write(self, attention: Attention, tokens: dict[str, str], output: str, kind: int) -> None:
        """``tokens`` names its sources, [1, tokens, heads x width] of the type ``kind``, like ``output``."""
        outer, constants = self._nodes, self._constants
        base = outer.name(f"attention/{attention.output}/")
        rows = {
            source: self._rows(name, attention.heads * attention.width) for source, name in tokens.items()
        }
        shapes = {name: self._shapes(name, attention) for name in (LENGTHS, QUERY_LENGTHS)}
        body = _Body(attention, Nodes(f"{base}run/"), constants, outer.prefix)
        outer.add("SequenceEmpty", [], f"{base}none", dtype=kind)
        loop = [outer.name(COUNT), constants.true(), f"{base}none"]
        outer.add("Loop", loop, f"{base}parts", body=body.graph(rows, shapes, kind))
        outer.add("ConcatFromSequence", [f"{base}parts"], f"{base}joined", axis=0)
        outer.add("Unsqueeze", [f"{base}joined", constants.sizes(0)], output)

    def _rows(self, tokens: str, width: int) -> str:
        """[tokens, width]."""
        name = self._nodes.name(f"rows/{tokens}")
        if name not in self._made:
            self._made.add(name)
            self._nodes.add("Reshape", [tokens, self._constants.sizes(-1, width)], name)
        return name

    def _shapes(self, places: str, attention: Attention) -> str:
        """[runs, 4]: places of each row, rows, heads, width of a head."""
        name = self._nodes.name(f"{places}_{attention.heads}_{attention.width}")
        if name not in self._made:
            self._made.add(name)
            only_length, rest = self._constants.sizes(1, 0, 0, 0), (0, -1, attention.heads, attention.width)
            length = self._nodes.add("Mul", [self._nodes.name(places), only_length], f"{name}/length")
            self._nodes.add("Add", [length, self._constants.sizes(*rest)], name)
        return name


class _Body:
    """One run: a block of a group's queries beside all its keys."""

    def __init__(self, attention: Attention, nodes: Nodes, constants: GraphConstants, outer: str) -> None:
        self._attention, self._nodes, self._constants, self._outer = attention, nodes, constants, outer

    def graph(self, rows: dict[str, str], shapes: dict[str, str], kind: int) -> onnx.GraphProto:
        attention, name = self._attention, self._nodes.name
        for bound in (STARTS, ENDS, QUERY_STARTS, QUERY_ENDS):
            self._nodes.add("Gather", [self._outer + bound, name("number")], name(bound))
        for places, shape in shapes.items():
            self._nodes.add("Gather", [shape, name("number")], name(places))
        query = self._operand("query", attention.query, rows[attention.query.source], QUERY)
        key = self._operand("key", attention.key, rows[attention.key.source], KEYS)
        value = self._operand("value", attention.value, rows[attention.value.source], KEYS)
        carried = self._copy(attention.inner[0], [query, key])
        for node in attention.inner[1:-1]:
            carried = self._copy(node, self._beside_constants(node, carried))
        carried = self._copy(attention.inner[-1], [carried, value])
        self._nodes.add("Transpose", [carried], name("by_token"), perm=BY_PLACE)
        flat = self._constants.sizes(-1, attention.heads * attention.width)
        self._nodes.add("Reshape", [name("by_token"), flat], name("rows"))
        self._nodes.add("SequenceInsert", [name("before"), name("rows")], name("after"))
        self._nodes.add("Identity", [name("go_on")], name("goes_on"))
        parts = [helper.make_tensor_sequence_value_info(name(end), kind, None) for end in ("before", "after")]
        return helper.make_graph(
            self._nodes.nodes,
            name("body"),
            [
                helper.make_tensor_value_info(name("number"), TensorProto.INT64, []),
                helper.make_tensor_value_info(name("go_on"), TensorProto.BOOL, []),
                parts[0],
            ],
            [helper.make_tensor_value_info(name("goes_on"), TensorProto.BOOL, []), parts[1]],
        )

    def _operand(self, side: str, part: Operand, rows: str, tokens: tuple[str, str, str]) -> str:
        name = self._nodes.name
        start, end, places = map(name, tokens)
        self._nodes.add("Slice", [rows, start, end, self._constants.sizes(0)], name(f"{side}/rows"))
        self._nodes.add("Reshape", [name(f"{side}/rows"), places], name(f"{side}/heads"))
        perm = [OF_PLACES[axis] for axis in part.perm]
        carried = self._nodes.add("Transpose", [name(f"{side}/heads")], name(f"{side}/turned"), perm=perm)
        for factor in part.factors:
            carried = self._copy(factor, self._beside_constants(factor, carried), f"{side}/")
        return carried

    def _beside_constants(self, node: onnx.NodeProto, carried: str) -> list[str]:
        constants = self._constants
        return [constants.known(name) if constants.is_known(name) else carried for name in node.input]

    def _copy(self, node: onnx.NodeProto, inputs: list[str], of: str = "") -> str:
        output = self._nodes.name(f"{of}of/{node.output[0]}")
        self._nodes.copy(node, inputs, [output])
        return output
