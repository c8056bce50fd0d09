"""The ragged front: the small graph put before a text model so that rows of any length make one batch.

Triton's dynamic batcher joins only requests of equal shape, unless an input is ragged: then it hands over
the tokens of all requests end to end, and, as a ``batch_input`` of kind ``BATCH_ITEM_SHAPE``, the length
of each row. The front makes rows of that again: [batch, longest], filled up with the pad id, and derives
the mask and what else the model takes. Syntax: github.com/onnx/onnx/blob/main/docs/Syntax.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from triton_repo_builder.plan.tensors import CHUNK_INDEX, CHUNK_SEPARATOR, LENGTHS, PAD, TOKENS, TYPES

OLDEST_OPSET = 11
"""The first with Range and CumSum."""
_ROWS = """
    zero = Constant <value = int64 {{0}}> ()
    one = Constant <value = int64 {{1}}> ()
    filler = Constant <value = int32 {{{filler}}}> ()
    lengths = Cast <to = 7> ({lengths_in})
    ends = CumSum (lengths, zero)
    starts = Sub (ends, lengths)
    longest = ReduceMax <keepdims = 0> (lengths)
    column = Range (zero, longest, one)
    inside = Less (column, lengths)
    place = Add (starts, column)
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
    zero = Constant <value = int64 {{0}}> ()
    one = Constant <value = int64 {{1}}> ()
    all = Constant <value = int64[1] {{-1}}> ()
    from_first = Constant <value = int64[1] {{0}}> ()
    as_column = Constant <value = int64[2] {{-1, 1}}> ()
    filler = Constant <value = int32 {{{filler}}}> ()
    break = Constant <value = int32 {{{brk}}}> ()
    lengths = Cast <to = 7> ({lengths_in})
    ends = CumSum (lengths, zero)
    starts = Sub (ends, lengths)
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
    begin_of = Gather (begin, segment)
    inner = Sub (index, begin_of)
    is_token = Less (filler, {tokens_in})
    inner_of_token = Where (is_token, inner, zero)
    last_place = ReduceMax <keepdims = 0> (inner_of_token)
    longest = Add (last_place, one)
    column = Range (zero, longest, one)
    begin_column = Reshape (begin, as_column)
    place = Add (begin_column, column)
    exists = Less (place, total)
    safe_place = Where (exists, place, zero)
    segment_there = Gather (segment, safe_place)
    own_segment = Gather (segment, begin)
    own_column = Reshape (own_segment, as_column)
    same = Equal (segment_there, own_column)
    inside = And (same, exists)
    found = Gather ({tokens_in}, safe_place)
    rows = Where (inside, found, filler)
    real = Less (filler, rows)
    mask = Cast <to = 7> (real)
"""
_CHUNK_INDEX = {
    # [batch, longest, 2]: of each place in a row of the batch the row of the model and the place in that.
    "tokens": """
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
    first = Gather (segment, starts)
    end = Sub (ends, one)
    last = Gather (segment, end)
    extra = Sub (last, first)
    most_extra = ReduceMax <keepdims = 0> (extra)
    most = Add (most_extra, one)
    nth = Range (zero, most, one)
    nth_of_row = Add (first, nth)
    too_far = Less (last, nth_of_row)
    {places} = Where (too_far, last, nth_of_row)""",
}


def front(
    model_inputs: Iterable[tuple[str, int]],
    *,
    pad_id: int,
    types: bool,
    chunks: str = "",
    positions_from_pad: bool = False,
) -> str:
    """The text of the front for the model inputs ``wanted``: (name, ONNX element type, 6 or 7) each.

    With ``types`` the token types come in as a second ragged tensor; else they are 0, as they are for
    every single text of most tokenizers. With ``chunks`` an item of the batch may be several rows of the
    model, and the head gets their index in ``trb_places``: INT64 [batch, longest, 2] for ``tokens``, (row of
    the model, place in it) of each token; INT64 [batch, most] for ``rows``, the rows of the model.
    With ``positions_from_pad`` position ids count as RoBERTa's do.
    """
    names = {"tokens_in": TOKENS, "types_in": TYPES, "lengths_in": LENGTHS, "places": CHUNK_INDEX}
    derive = {**_DERIVE, "token_type_ids": _TYPES_GIVEN if types else _TYPES_ZERO}
    if positions_from_pad:
        derive["position_ids"] = _FROM_PAD
    body = (_CHUNKS if chunks else _ROWS).format(filler=PAD, brk=CHUNK_SEPARATOR, **names)
    outputs = []
    if chunks:
        body += _CHUNK_INDEX[chunks].format(**names)
        outputs.append(f"int64[B, {'W, 2' if chunks == 'tokens' else 'K'}] {CHUNK_INDEX}")
    for name, to in model_inputs:
        part = derive[name]
        body += part.format(pad_id=pad_id, to=to, **names)
        outputs.append(f"{ {6: 'int32', 7: 'int64'}[to] }[{'S' if chunks else 'B'}, T] {name}")
    inputs = [f"int32[N] {TOKENS}", f"float[B, 1] {LENGTHS}"] + ([f"int32[N] {TYPES}"] if types else [])
    return f"ragged ({', '.join(inputs)}) => ({', '.join(outputs)}) {{{body}\n}}"
