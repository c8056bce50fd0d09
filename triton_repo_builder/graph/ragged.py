"""The ragged front: the small graph put before a text model so that rows of any length make one batch.

Triton's dynamic batcher joins only requests of equal shape, unless an input is ragged: then it hands over
the tokens of all requests end to end, and, as a ``batch_input`` of kind ``BATCH_ITEM_SHAPE``, the length
of each row. The front makes rows of that again: [batch, longest], filled up with the pad id, and derives
the mask and what else the model takes. Syntax: github.com/onnx/onnx/blob/main/docs/Syntax.md.
"""

from __future__ import annotations

from collections.abc import Iterable

TOKENS, TYPES, LENGTHS = "trb_tokens", "trb_types", "trb_lengths"
"""Inputs of the served model: INT32 [all tokens], INT32 [all tokens], FP32 [rows, 1]."""
OLDEST_OPSET = 11
"""The first with Range and CumSum."""
FILLER = -1
"""What a request of several rows pads its own rows with: no token has this id."""

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
# RoBERTa's: pad id + 1 is the first, and whatever has the pad id stays at it.
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


def front(
    wanted: Iterable[tuple[str, int]], *, pad_id: int, types: bool, positions_from_pad: bool = False
) -> str:
    """The text of the front for the model inputs ``wanted``: (name, ONNX element type, 6 or 7) each.

    With ``types`` the token types come in as a second ragged tensor; else they are 0, as they are for
    every single text of most tokenizers. ``positions_from_pad``: position ids count as RoBERTa's do.
    """
    names = {"tokens_in": TOKENS, "types_in": TYPES, "lengths_in": LENGTHS}
    derive = {**_DERIVE, "token_type_ids": _TYPES_GIVEN if types else _TYPES_ZERO}
    if positions_from_pad:
        derive["position_ids"] = _FROM_PAD
    body = _ROWS.format(filler=FILLER, **names)
    outputs = []
    for name, to in wanted:
        part = derive[name]
        body += part.format(pad_id=pad_id, to=to, **names)
        outputs.append(f"{ {6: 'int32', 7: 'int64'}[to] }[B, T] {name}")
    inputs = [f"int32[N] {TOKENS}", f"float[B, 1] {LENGTHS}"] + ([f"int32[N] {TYPES}"] if types else [])
    return f"ragged ({', '.join(inputs)}) => ({', '.join(outputs)}) {{{body}\n}}"
