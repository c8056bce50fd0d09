"""The ragged front: the small graph put before a text model so that rows of any length make one batch.

Triton's dynamic batcher joins only requests of equal shape, unless an input is ragged. Then it hands over the
tokens of all requests end to end, and the length of each row as a ``batch_input`` of kind
``BATCH_ITEM_SHAPE``. The front makes rows of them again, [batch, longest], filled up with the pad id, and
derives the mask and the model's other inputs. Syntax: github.com/onnx/onnx/blob/main/docs/Syntax.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from triton_repo_builder.model.graph.parts import Front, Rows
from triton_repo_builder.repository.tensor_names import (
    CHUNK_INDEX,
    CHUNK_SEPARATOR,
    LENGTHS,
    PAD,
    ROW_LENGTHS,
    TOKENS,
    TYPES,
)

OLDEST_OPSET = 11
"""The first with Range and CumSum."""
RUN = 16
"""Another run of the graph costs as much as this many tokens of padding: its weights are read once more (10
to 24, measured on CPUs whose memory is fast and slow; docs/design.md)."""
MOST = 16384
"""Tokens of a group, padding included, unless ``--run-tokens`` says otherwise: 32 rows of 512. More at once
is not faster on a CPU, and takes memory that ONNX Runtime keeps. A longer row runs alone."""
WIDE = 512
"""Tokens of a row up to which that bounds a group on padded rows; of longer ones as many as have no more
pairs of tokens, for attention may take memory by pairs."""
GROUP_SHARED = ("begin", "length", "order", "group_starts")
"""Tensors of the front that the loop over groups reads."""
ROW_COUNT = "rows_1d"
"""How many rows the model has, INT64 [1], known before the loop."""
GROUP_END, GROUP_START, GROUP_ROWS = "group_end", "group_start", "group_rows"
"""Tensors of the loop's body: the group's end in the order of rows, its start, where the next group ends,
INT64 [1]; its rows' numbers, INT64 [rows, 1]."""

# Where each item of the batch begins and ends in the tokens: ``starts`` and ``ends``, INT64 [items, 1].
_ITEMS = """
    zero = Constant <value = int64 {{0}}> ()
    one = Constant <value = int64 {{1}}> ()
    all = Constant <value = int64[1] {{-1}}> ()
    filler = Constant <value = int32 {{{filler}}}> ()
    lengths = Cast <to = 7> ({lengths_in})
    ends = CumSum (lengths, zero)
    starts = Sub (ends, lengths)
"""
# The same of the rows of the model, ``begin`` and ``end``, INT64 [rows], where each item is one row.
_ROWS = """
    begin = Reshape (starts, all)
    end = Reshape (ends, all)
"""
# ``length``, INT64 [rows]: a row's tokens without filling; 1, a place of padding, if there is none.
_LENGTH = """
    first_place = Constant <value = int64[1] {{0}}> ()
    is_real = Less (filler, {tokens_in})
    real_tokens = Cast <to = 7> (is_real)
    tokens_through = CumSum (real_tokens, zero)
    tokens_before = Concat <axis = 0> (first_place, tokens_through)
    before_end = Gather (tokens_before, end)
    before_begin = Gather (tokens_before, begin)
    tokens_of_row = Sub (before_end, before_begin)
    is_empty = Less (tokens_of_row, one)
    length = Where (is_empty, one, tokens_of_row)
"""
# Rows of the model in one array, [rows, longest], filled up with the filler.
_PAD = """
    into_column = Constant <value = int64[2] {{-1, 1}}> ()
    longest = ReduceMax <keepdims = 0> ({length})
    column = Range (zero, longest, one)
    length_column = Reshape ({length}, into_column)
    begin_column = Reshape ({begin}, into_column)
    inside = Less (column, length_column)
    place = Add (begin_column, column)
    safe_place = Where (inside, place, zero)
    found = Gather ({tokens_in}, safe_place)
    rows = Where (inside, found, filler)
    real = Less (filler, rows)
    mask = Cast <to = 7> (real)
"""

_DERIVE = {
    "input_ids": """
    pad = Constant <value = int32 {{{pad_id}}}> ()
    ids = Where (real, rows, pad)
    input_ids = Cast <to = {to}> (ids)""",
    "attention_mask": """
    attention_mask = Cast <to = {to}> (mask)""",
    "position_ids": """
    counted = CumSum (mask, one)
    counted_from_0 = Sub (counted, one)
    counted_real = Where (real, counted_from_0, zero)
    position_ids = Cast <to = {to}> (counted_real)""",
}
# RoBERTa's: pad id + 1 is the first, and every pad id stays at it.
_FROM_PAD = """
    pad_id = Constant <value = int64 {{{pad_id}}}> ()
    pad_id32 = Constant <value = int32 {{{pad_id}}}> ()
    filled = Where (real, rows, pad_id32)
    is_pad = Equal (filled, pad_id32)
    no_pad = Not (is_pad)
    no_pad64 = Cast <to = 7> (no_pad)
    counted = CumSum (no_pad64, one)
    counted_real = Mul (counted, no_pad64)
    from_pad = Add (counted_real, pad_id)
    position_ids = Cast <to = {to}> (from_pad)"""
_TYPES_GIVEN = """
    types_found = Gather ({types_in}, safe_place)
    types_zero = Constant <value = int32 {{0}}> ()
    types_real = Where (real, types_found, types_zero)
    token_type_ids = Cast <to = {to}> (types_real)"""
_TYPES_ZERO = """
    types_all_0 = Sub (mask, mask)
    token_type_ids = Cast <to = {to}> (types_all_0)"""


# An item of the batch may be several rows of the model, its chunks, with CHUNK_SEPARATOR between them: the
# overlapping parts of a long text, or a text beside each of its labels. ``segment`` [N] is the chunk (row of
# the model) that each token belongs to, ``inner`` [N] its index in the chunk.
_CHUNKS = """
    from_first = Constant <value = int64[1] {{0}}> ()
    break = Constant <value = int32 {{{brk}}}> ()
    total_1d = Shape ({tokens_in})
    total = Squeeze (total_1d)
    index = Range (zero, total, one)
    is_break = Equal ({tokens_in}, break)
    breaks = Cast <to = 7> (is_break)
    breaks_through = CumSum (breaks, zero)
    breaks_before = Sub (breaks_through, breaks)
    no_marks = Sub (breaks, breaks)
    zeros_of_rows = Sub (starts, starts)
    ones_of_rows = Add (zeros_of_rows, one)
    marks = Reshape (ones_of_rows, all)
    row_marks = ScatterND (no_marks, starts, marks)
    row_from_1 = CumSum (row_marks, zero)
    row_of = Sub (row_from_1, one)
    segment = Add (row_of, breaks_before)
    but_last = Slice (segment, from_first, all)
    previous = Concat <axis = 0> (all, but_last)
    goes_on = Equal (segment, previous)
    begins = Not (goes_on)
    begins_2d = NonZero (begins)
    begin = Reshape (begins_2d, all)
    second = Constant <value = int64[1] {{1}}> ()
    no_end = Constant <value = int64[1] {{9223372036854775807}}> ()
    but_first = Slice (begin, second, no_end)
    end = Concat <axis = 0> (but_first, total_1d)
    begin_of = Gather (begin, segment)
    inner = Sub (index, begin_of)
    is_token = Less (filler, {tokens_in})
    inner_of_token = Where (is_token, inner, zero)
"""
_CHUNK_INDEX = {
    # [batch, longest, 2]: of each place in a row of the batch the row of the model and the place in that.
    "tokens": """
    as_column = Constant <value = int64[2] {{-1, 1}}> ()
    segment_column = Reshape (segment, as_column)
    inner_column = Reshape (inner_of_token, as_column)
    pairs = Concat <axis = 1> (segment_column, inner_column)
    row_longest = ReduceMax <keepdims = 0> (lengths)
    row_column = Range (zero, row_longest, one)
    row_inside = Less (row_column, lengths)
    row_place = Add (starts, row_column)
    row_safe_place = Where (row_inside, row_place, zero)
    {places} = Gather (pairs, row_safe_place)""",
    # [batch, most]: the rows of the model that a row of the batch stands for, filled up with its last.
    "rows": """
    first_row = Gather (segment, starts)
    last_of_row = Sub (ends, one)
    last_row = Gather (segment, last_of_row)
    extra = Sub (last_row, first_row)
    most_extra = ReduceMax <keepdims = 0> (extra)
    most = Add (most_extra, one)
    nth = Range (zero, most, one)
    nth_of_row = Add (first_row, nth)
    too_far = Less (last_row, nth_of_row)
    {places} = Where (too_far, last_row, nth_of_row)""",
}


# Rows in the order of their lengths (``order``), and for each row of that order where the group starts that
# ends with it (``group_starts``). Of all ways to cut the order into groups the cheapest: a group costs its
# tokens, padding included, and RUN; it has at most MOST tokens, or one row. ``least`` [rows + 1] is the cost
# of all rows before a place: the usual dynamic programme, a row a time.
_GROUPS = """
    {row_count_1d} = Shape (length)
    sorted, order = TopK <axis = 0, largest = 0, sorted = 1> (length, {row_count_1d})
    sorted32 = Cast <to = 1> (sorted)
    row_count = Squeeze ({row_count_1d})
    place_count = Add (row_count, one)
    place_count32 = Cast <to = 1> (place_count)
    origin = Constant <value = float {{0}}> ()
    step = Constant <value = float {{1}}> ()
    place = Range (origin, place_count32, step)
    run = Constant <value = float {{{run}}}> ()
    most_tokens = Constant <value = float {{{most}}}> ()
    most_pairs = Constant <value = float {{{most_pairs}}}> ()
    by_pairs = Div (most_pairs, sorted32)
    within_both = Min (most_tokens, by_pairs)
    allowed_tokens = Max (sorted32, within_both)
    unknown = Constant <value = float {{1e30}}> ()
    is_first = Less (place, step)
    least_of_none = Where (is_first, origin, unknown)
    yes = Constant <value = bool {{1}}> ()
    least_of_all, group_starts = Loop <body = cheapest (int64 row, bool always, float[P] least)
        => (bool still, float[P] least_through, int64 start) {{
        still = Identity (always)
        longest = Gather (sorted32, row)
        row32 = Cast <to = 1> (row)
        end_place = Add (row32, step)
        rows_from = Sub (end_place, place)
        tokens_from = Mul (rows_from, longest)
        with_run = Add (tokens_from, run)
        cost = Add (with_run, least)
        allowed = Gather (allowed_tokens, row)
        too_many = Less (allowed, tokens_from)
        allowed_cost = Where (too_many, unknown, cost)
        start = ArgMin <keepdims = 0> (allowed_cost)
        lowest = ReduceMin <keepdims = 0> (allowed_cost)
        is_end = Equal (place, end_place)
        least_through = Where (is_end, lowest, least)
    }}> (row_count, yes, least_of_none)
"""
# The same where only little is computed of padding (``packing/``), without a loop: rows in the order of
# their lengths are cut where the tokens of all rows so far, or the padding that they would have in one group,
# go beyond a multiple of MOST. Neither falls, so a group has at most MOST tokens and a row, MOST of padding.
_PACKS = """
    {row_count_1d} = Shape (length)
    sorted, order = TopK <axis = 0, largest = 0, sorted = 1> (length, {row_count_1d})
    row_count = Squeeze ({row_count_1d})
    place_in_order = Range (zero, row_count, one)
    most_of_pack = Constant <value = int64 {{{most}}}> ()
    tokens_so_far = CumSum <exclusive = 1> (sorted, zero)
    padded_so_far = Mul (place_in_order, sorted)
    padding_so_far = Sub (padded_so_far, tokens_so_far)
    full = Div (tokens_so_far, most_of_pack)
    wasted = Div (padding_so_far, most_of_pack)
    pack = Add (full, wasted)
    but_last_pack = Slice (pack, first_place, all)
    pack_before = Concat <axis = 0> (all, but_last_pack)
    same_pack = Equal (pack, pack_before)
    new_pack = Not (same_pack)
    new_pack64 = Cast <to = 7> (new_pack)
    new_pack_2d = NonZero (new_pack)
    pack_starts = Reshape (new_pack_2d, all)
    packs_through = CumSum (new_pack64, zero)
    pack_number = Sub (packs_through, one)
    group_starts = Gather (pack_starts, pack_number)
"""
# Each row by itself, never padded.
_SINGLE = """
    {row_count_1d} = Shape (length)
    row_count = Squeeze ({row_count_1d})
    order = Range (zero, row_count, one)
    group_starts = Range (zero, row_count, one)
"""
_LOOP = {Rows.GROUPS: _GROUPS, Rows.PACKED: _PACKS, Rows.SINGLE: _SINGLE}
# Inputs of the loop's body: the shared tensors outside of it, ``GROUP_END`` and the front's inputs.
_GROUP = """
    zero = Constant <value = int64 {{0}}> ()
    one = Constant <value = int64 {{1}}> ()
    filler = Constant <value = int32 {{{filler}}}> ()
    last = Sub ({end}, one)
    {start} = Gather (group_starts, last)
    index = Slice (order, {start}, {end})
    group_begin = Gather (begin, index)
    group_length = Gather (length, index)
"""
_ROW_LENGTHS = f"""
    {ROW_LENGTHS} = Identity (group_length)
"""
_GROUP_ROWS = """
    {index} = Reshape (index, into_column)
"""


def front(
    model_inputs: Iterable[tuple[str, int]],
    *,
    pad_id: int,
    types: bool,
    chunks: str = "",
    positions_from_pad: bool = False,
    rows: Rows = Rows.PADDED,
    most: int = MOST,
) -> Front:
    """The front for the model inputs ``model_inputs``: (name, ONNX element type, 6 or 7) each.

    With ``types`` the token types come in as a second ragged tensor; else they are 0, as they are for
    every single text of most tokenizers. With ``chunks`` an item of the batch may be several rows of the
    model, and the head gets their index in ``trb_places``: INT64 [batch, longest, 2] for ``tokens``, (row of
    the model, place in it) of each token; INT64 [batch, most] for ``rows``, the rows of the model.
    With ``positions_from_pad`` position ids count as RoBERTa's do. A group has ``most`` tokens, or one row.
    """
    names = {
        **{"tokens_in": TOKENS, "types_in": TYPES, "lengths_in": LENGTHS, "places": CHUNK_INDEX},
        **{"start": GROUP_START, "index": GROUP_ROWS, "filler": PAD, "brk": CHUNK_SEPARATOR},
        **{"most": most, "most_pairs": most * WIDE, "run": RUN, "row_count_1d": ROW_COUNT},
    }
    derive = {**_DERIVE, "token_type_ids": _TYPES_GIVEN if types else _TYPES_ZERO}
    if positions_from_pad:
        derive["position_ids"] = _FROM_PAD
    batch = "S" if chunks else "B"
    derived = [f"{ {6: 'int32', 7: 'int64'}[to] }[{batch}, T] {name}" for name, to in model_inputs]
    inputs = [f"int32[N] {TOKENS}", f"float[B, 1] {LENGTHS}"] + ([f"int32[N] {TYPES}"] if types else [])
    places = [f"int64[B, {'W, 2' if chunks == 'tokens' else 'K'}] {CHUNK_INDEX}"] if chunks else []
    outside = _ITEMS + (_CHUNKS if chunks else _ROWS) + _LENGTH + _CHUNK_INDEX.get(chunks, "")
    fill = "".join(derive[name].format(pad_id=pad_id, to=to, **names) for name, to in model_inputs)
    if rows is Rows.PADDED:
        body = outside.format(**names) + _PAD.format(begin="begin", length="length", **names) + fill
        return Front(text=_graph(inputs, [*places, *derived], body))
    body = (outside + _LOOP[rows]).format(**names)
    group = _GROUP.format(end=GROUP_END, **names) + _PAD.format(
        begin="group_begin", length="group_length", **names
    )
    group += _GROUP_ROWS.format(**names) + fill
    packed = rows is Rows.PACKED
    shared = [f"int64[R] {name}" for name in GROUP_SHARED]
    group_inputs = [*inputs, *shared, f"int64[1] {GROUP_END}"]
    group_outputs = [f"int64[1] {GROUP_START}", f"int64[R, 1] {GROUP_ROWS}"]
    if packed:
        group += _ROW_LENGTHS
        group_outputs.append(f"int64[R] {ROW_LENGTHS}")
    return Front(
        packed=packed,
        text=_graph(inputs, [*places, *shared], body),
        group=_graph(group_inputs, [*group_outputs, *derived], group),
    )


def _graph(inputs: Iterable[str], outputs: Iterable[str], body: str) -> str:
    return f"ragged ({', '.join(inputs)}) => ({', '.join(outputs)}) {{{body}\n}}"
