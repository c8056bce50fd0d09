"""The small graphs put after a user's model, in ONNX's own text form: what is read here is what runs.

Every pooling but ``max`` is a weighted sum of token vectors; only the weights differ. Padding has mask 0, so
padded and unpadded rows give the same answer. Syntax:
github.com/onnx/onnx/blob/main/docs/Syntax.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FLOAT, INT64 = 1, 7

# Shared by all poolings: the mask as floats, its running count (1, 2, … over real tokens), its sum.
# If nothing is masked in, the sum is held above 0, so that the answer is zeros and not NaN.
_MASK = """
    hidden32 = Cast <to = 1> (hidden)
    mask = Cast <to = 1> (attention_mask)
    axis = Constant <value = int64 {1}> ()
    count = CumSum (mask, axis)
    as_row = Constant <value = int64[3] {0, 1, -1}> ()
    as_column = Constant <value = int64[3] {0, -1, 1}> ()
    mask_row = Reshape (mask, as_row)
    mask_column = Reshape (mask, as_column)
    tokens_3d = MatMul (mask_row, mask_column)
    flat = Constant <value = int64[2] {0, -1}> ()
    tokens = Reshape (tokens_3d, flat)
    tiny = Constant <value = float {1e-9}> ()
    tokens_safe = Max (tokens, tiny)
"""

# The same, if the first ``skip`` tokens of a row are a prompt that does not count.
_MASK_AFTER = _MASK.replace(
    "    mask = Cast <to = 1> (attention_mask)",
    """
    real = Cast <to = 1> (attention_mask)
    first_axis = Constant <value = int64 {1}> ()
    place = CumSum (real, first_axis)
    skipped = Constant <value = float {SKIP}> ()
    after = Greater (place, skipped)
    after32 = Cast <to = 1> (after)
    mask = Mul (real, after32)""",
)

_WEIGHTS = {
    "mean": "weights = Div (mask, tokens_safe)",
    "mean_sqrt_len": """
    root = Sqrt (tokens_safe)
    weights = Div (mask, root)""",
    "cls": """
    one_token = Constant <value = float {1}> ()
    is_first = Equal (count, one_token)
    is_first32 = Cast <to = 1> (is_first)
    weights = Mul (is_first32, mask)""",
    "lasttoken": """
    is_last = Equal (count, tokens)
    is_last32 = Cast <to = 1> (is_last)
    weights = Mul (is_last32, mask)""",
    "weightedmean": """
    positions = Mul (count, mask)
    positions_row = Reshape (positions, as_row)
    total_3d = MatMul (positions_row, mask_column)
    total = Reshape (total_3d, flat)
    total_safe = Max (total, tiny)
    weights = Div (positions, total_safe)""",
}

# A row's sum is the same, to the last bit, however many tokens and rows there are: see graph/token_sums.py.
_WEIGHTED_SUM = """
    weights_column = Reshape (weights, as_column)
    weighted = Mul (hidden32, weights_column)
    by_token = Transpose <perm = [1, 0, 2]> (weighted)
    sizes = Shape (by_token)
    after_tokens = Constant <value = int64[1] {1}> ()
    last_size = Constant <value = int64[1] {3}> ()
    answer_sizes = Slice (sizes, after_tokens, last_size)
    side_by_side = Reshape (by_token, flat)
    {reduce}
    of_tokens = Reshape (summed, answer_sizes)
"""

# A masked token counts as the lowest float, so it is never the largest; a row without tokens gives zeros.
_MAX = """
    kept = Cast <to = 9> (mask_column)
    lowest = Constant <value = float {-3.4e38}> ()
    visible = Where (kept, hidden32, lowest)
    {reduce}
    any_kept = Cast <to = 9> (tokens)
    zero = Constant <value = float {0}> ()
    of_tokens = Where (any_kept, largest, zero)
"""

POOLINGS = (*_WEIGHTS, "max")

# x / max(|x|, 1e-12), the definition of torch.nn.functional.normalize.
_NORMALISE = """
    p_row = Reshape (pooled, as_row_p)
    p_column = Reshape (pooled, as_column_p)
    square_3d = MatMul (p_row, p_column)
    square = Reshape (square_3d, flat_p)
    length = Sqrt (square)
    smallest = Constant <value = float {1e-12}> ()
    length_safe = Max (length, smallest)
    RESULT = Div (pooled, length_safe)
"""
_NORMALISE_SHAPES = """
    as_row_p = Constant <value = int64[3] {0, 1, -1}> ()
    as_column_p = Constant <value = int64[3] {0, -1, 1}> ()
    flat_p = Constant <value = int64[2] {0, -1}> ()
"""


_FIRST = """
    from = Constant <value = int64[1] {0}> ()
    to = Constant <value = int64[1] {KEEP}> ()
    of_values = Constant <value = int64[1] {1}> ()
    embedding = Slice (whole, from, to, of_values)
"""


def finished(*, normalise: bool, result: str = "embedding") -> str:
    """``pooled`` [batch, width] → ``result``, of length 1 or as it is."""
    text = _NORMALISE_SHAPES + _NORMALISE if normalise else "RESULT = Identity (pooled)\n"
    return text.replace("RESULT", result)


@dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """activation(x @ weight + bias), weight [inputs, outputs]."""

    inputs: int
    outputs: int
    activation: str


_DENSE = """
    product_{n} = MatMul ({source}, dense_{n}_weight)
    biased_{n} = Add (product_{n}, dense_{n}_bias)
    layer_{n} = {operator} (biased_{n})
"""
_OPERATORS = {"none": "Identity", "tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}


def embedding(
    *,
    pooling: str | None,
    normalise: bool,
    width: int | None,
    opset: int,
    dense: Sequence[DenseLayer] = (),
    skip: int = 0,
    keep: int | None = None,
) -> str:
    """hidden [batch, tokens, width], attention_mask [batch, tokens] → embedding [batch, width].

    With ``pooling`` None, ``hidden`` is [batch, width], pooled by the model itself. The layers of ``dense``
    come between pooling and normalising, their weights as inputs ``dense_0_weight``, ``dense_0_bias`` …. The
    first ``skip`` tokens of every row are not pooled; of the embedding the first ``keep`` values are given.
    """
    size = width or "W"
    inputs = [f"float[B, T, {size}] hidden", "int64[B, T] attention_mask"]
    mask, weights = _MASK, _WEIGHTS.get(pooling or "", "")
    if skip:
        mask = _MASK_AFTER.replace("SKIP", str(skip))
        # sentence-transformers weighs a token by its place in the row, not by that among those that count.
        weights = weights.replace("Mul (count, mask)", "Mul (place, mask)")
    if pooling is None:
        inputs = [f"float[B, {size}] hidden"]
        body = "first = Cast <to = 1> (hidden)\n"
    elif pooling == "max":
        body = mask + _MAX.replace("{reduce}", reduce_max(opset))
    else:
        body = mask + weights + _WEIGHTED_SUM.replace("{reduce}", _reduce_sum(opset))
    source: str = "first" if pooling is None else "of_tokens"
    for n, layer in enumerate(dense):
        inputs.append(f"float[{layer.inputs}, {layer.outputs}] dense_{n}_weight")
        inputs.append(f"float[{layer.outputs}] dense_{n}_bias")
        body += _DENSE.format(n=n, source=source, operator=_OPERATORS[layer.activation])
        source, size = f"layer_{n}", layer.outputs
    body += f"pooled = Identity ({source})\n"
    body += finished(normalise=normalise, result="whole" if keep else "embedding")
    if keep:
        body, size = body + _FIRST.replace("KEEP", str(keep)), keep
    return f"embed ({', '.join(inputs)}) => (float[B, {size}] embedding) {{{body}}}"


def reduce_max(opset: int) -> str:
    """The axes of ReduceMax became an input in opset 18."""
    if opset < 18:
        return "largest = ReduceMax <axes = [1], keepdims = 0> (visible)"
    return "axes = Constant <value = int64[1] {1}> ()\n    largest = ReduceMax <keepdims = 0> (visible, axes)"


def _reduce_sum(opset: int) -> str:
    """The axes of ReduceSum became an input in opset 13."""
    if opset < 13:
        return "summed = ReduceSum <axes = [0], keepdims = 0> (side_by_side)"
    return """of_tokens_axis = Constant <value = int64[1] {0}> ()
    summed = ReduceSum <keepdims = 0> (side_by_side, of_tokens_axis)"""


ACTIVATIONS = {
    "softmax": "scores = Softmax <axis = 1> (logits32)",
    "sigmoid": "scores = Sigmoid (logits32)",
    "none": "scores = Identity (logits32)",
}


def classification(*, activation: str, labels: int) -> str:
    """logits [batch, labels] → scores, and the top one's name and score.

    The names are the text model's string initializer ``label_names``, which the composer adds.
    """
    cast = f"logits32 = Cast <to = 1> (logits)\n    {ACTIVATIONS[activation]}\n"
    return f"""classify (float[B, {labels}] logits, string[{labels}] label_names)
        => (string[B, 1] label, float[B, 1] score, float[B, {labels}] scores) {{
    {cast}
    top = ArgMax <axis = 1, keepdims = 1> (scores)
    label = Gather <axis = 0> (label_names, top)
    score = GatherElements <axis = 1> (scores, top)
}}"""


def rerank(*, activation: str) -> str:
    """The one logit of a cross-encoder [batch, 1] → score."""
    return f"""rerank (float[B, 1] logits) => (float[B, 1] score) {{
    logits32 = Cast <to = 1> (logits)
    {ACTIVATIONS[activation]}
    score = Identity (scores)
}}"""
