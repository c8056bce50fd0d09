"""The head of a sparse embedding (SPLADE): logits of a masked language model → the tokens that count.

weight = max or sum over the text's tokens of log(1 + relu(logit)); of each row the tokens whose weight is
above 0, in the order of their ids. The arithmetic ends in double: log(1 + x) of a small x is 0 in float.
"""

from __future__ import annotations

from triton_repo_builder.model.graph.heads.pooling import reduce_max

POOLINGS = ("max", "sum")

# max and log commute, both grow: so one value per token of the vocabulary is logged, not one per text token.
_MAX = """
    kept_flat = Cast <to = 9> (attention_mask)
    as_column = Constant <value = int64[3] {{0, -1, 1}}> ()
    kept = Reshape (kept_flat, as_column)
    visible = Where (kept, logits32, zero)
    {reduce}
    positive = Relu (largest)
    wide_0 = Cast <to = 11> (positive)
"""
_SUM = """
    positive = Relu (logits32)
    wide = Cast <to = 11> (positive)
    more = Add (wide, one_wide)
    logged = Log (more)
    {again}
    mask_wide = Cast <to = 11> (attention_mask)
    as_row = Constant <value = int64[3] {{0, 1, -1}}> ()
    mask_row = Reshape (mask_wide, as_row)
    summed = MatMul (mask_row, {last})
    flat = Constant <value = int64[2] {{0, -1}}> ()
    weights_wide = Reshape (summed, flat)
"""
_AGAIN = """
    more_again = Add (logged, one_wide)
    logged_again = Log (more_again)"""

# Of each row the k entries above 0 with the smallest ids, k being the most that any row has: TopK of V - id.
_COMPACT = """
    weights = Cast <to = 1> (weights_wide)
    present = Greater (weights, zero)
    present32 = Cast <to = 1> (present)
    counted = CumSum (present32, axis)
    most = ReduceMax <keepdims = 0> (counted)
    one = Constant <value = float {1}> ()
    wanted = Max (most, one)
    wanted64 = Cast <to = 7> (wanted)
    as_vector = Constant <value = int64[1] {1}> ()
    k = Reshape (wanted64, as_vector)
    zeros = Sub (present32, present32)
    ones = Add (zeros, one)
    from_the_end = CumSum <reverse = 1> (ones, axis)
    key = Mul (from_the_end, present32)
    ordered, places = TopK <axis = 1> (key, k)
    real = Greater (ordered, zero)
    found = GatherElements <axis = 1> (weights, places)
    values = Where (real, found, zero)
    places32 = Cast <to = 6> (places)
    nothing = Constant <value = int32 {-1}> ()
    indices = Where (real, places32, nothing)
"""


def head(*, pooling: str, twice: bool, width: int | None, opset: int) -> str:
    """logits [batch, tokens, vocabulary], attention_mask → indices int32 and values float [batch, most].

    A row that has fewer ends in indices -1 and values 0. ``twice`` logs the logged weights again.
    """
    body = """
    logits32 = Cast <to = 1> (logits)
    axis = Constant <value = int64 {1}> ()
    zero = Constant <value = float {0}> ()
    one_wide = Constant <value = double {1}> ()
"""
    if pooling == "sum":
        body += _SUM.format(again=_AGAIN if twice else "", last="logged_again" if twice else "logged")
    else:
        body += _MAX.format(reduce=reduce_max(opset))
        for number in range(1 + twice):
            body += f"    more_{number} = Add (wide_{number}, one_wide)\n"
            body += f"    wide_{number + 1} = Log (more_{number})\n"
        body += f"    weights_wide = Identity (wide_{1 + twice})\n"
    inputs = f"float[B, T, {width or 'V'}] logits, int64[B, T] attention_mask"
    return f"sparse ({inputs}) => (int32[B, K] indices, float[B, K] values) {{{body}{_COMPACT}}}"
