"""The small graphs put after a user's model, in ONNX's own text form: what is read here is what runs.

Every pooling but ``max`` is a weighted sum of token vectors; only the weights differ. Padding has mask 0, so
padded and unpadded rows give the same answer. Syntax:
github.com/onnx/onnx/blob/main/docs/Syntax.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from triton_repo_builder.model.graph.heads.layers import UNIT_LENGTH, Layer

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

# A row's sum is the same to the last bit for any number of tokens and rows (model/graph/token_sums.py).
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

_FIRST = """
    from = Constant <value = int64[1] {0}> ()
    to = Constant <value = int64[1] {KEEP}> ()
    of_values = Constant <value = int64[1] {1}> ()
    embedding = Slice (whole, from, to, of_values)
"""


def finished(*, normalise: bool, result: str = "embedding") -> str:
    """``pooled`` [batch, width] → ``result``, of length 1 or as it is."""
    text = UNIT_LENGTH if normalise else "OUT = Identity (IN)\n"
    return _placed(text, {"IN": "pooled", "OUT": result})


def _placed(text: str, names: Mapping[str, str]) -> str:
    """The text with these names in it, as whole words."""
    return re.sub("|".join(rf"\b{name}\b" for name in names), lambda match: names[match[0]], text)


def _numbered(text: str, number: int, names: Mapping[str, str]) -> str:
    """The text with ``names`` in it, and a number after each other name that it gives to a result."""
    results = [name for name in re.findall(r"^ *(\w+) = ", text, re.MULTILINE) if name not in names]
    return _placed(text, {**names, **{name: f"{name}_{number}" for name in results}})


def embedding(
    *,
    pooling: str | None,
    normalise: bool,
    width: int | None,
    opset: int,
    layers: Sequence[Layer] = (),
    skip: int = 0,
    keep: int | None = None,
) -> str:
    """hidden [batch, tokens, width], attention_mask [batch, tokens] → embedding [batch, width].

    ``pooling``: one of ``POOLINGS``, or several (``cls+mean``), whose vectors are joined. With None,
    ``hidden`` is [batch, width], pooled by the model itself. ``layers`` come between pooling and
    normalising, their weights as inputs ``layer_0_weight``, ``layer_0_bias`` …. The first ``skip`` tokens of
    every row are not pooled; of the embedding the first ``keep`` values are given.
    """
    inputs, body, size = _vector(pooling, width, opset, layers, skip)
    body += finished(normalise=normalise, result="whole" if keep else "embedding")
    if keep:
        body, size = body + _FIRST.replace("KEEP", str(keep)), keep
    return f"embed ({', '.join(inputs)}) => (float[B, {size}] embedding) {{{body}}}"


def _vector(
    pooling: str | None, width: int | None, opset: int, layers: Sequence[Layer], skip: int = 0
) -> tuple[list[str], str, int | str]:
    """(inputs, operators that give ``pooled``, its size)."""
    size: int | str = width or "W"
    inputs = [f"float[B, T, {size}] hidden", "int64[B, T] attention_mask"]
    source = "of_tokens"
    if pooling is None:
        inputs, source = [f"float[B, {size}] hidden"], "first"
        body = "first = Cast <to = 1> (hidden)\n"
    else:
        body = _pooled(pooling.split("+"), opset, skip)
        size = width * len(pooling.split("+")) if width else "V" if "+" in pooling else size
    for n, layer in enumerate(layers):
        inputs += [f"{kind} layer_{n}_{name}" for name, kind in layer.parameters]
        parameters = {f"layer_{name}": f"layer_{n}_{name}" for name, _ in layer.parameters}
        body += _numbered(layer.text(opset), n, {"IN": source, "OUT": f"layer_{n}", **parameters})
        source, size = f"layer_{n}", layer.outputs or size
    return inputs, body + f"pooled = Identity ({source})\n", size


def _pooled(modes: Sequence[str], opset: int, skip: int) -> str:
    """``hidden`` and ``attention_mask`` → ``of_tokens``: the vectors of several poolings side by side."""
    mask = _MASK_AFTER.replace("SKIP", str(skip)) if skip else _MASK
    if len(modes) == 1:
        return mask + _by(modes[0], opset, skip)
    parts = [_numbered(_by(mode, opset, skip), n, {}) for n, mode in enumerate(modes)]
    joined = ", ".join(f"of_tokens_{n}" for n in range(len(modes)))
    return mask + "".join(parts) + f"of_tokens = Concat <axis = 1> ({joined})\n"


def _by(mode: str, opset: int, skip: int) -> str:
    if mode == "max":
        return _MAX.replace("{reduce}", reduce_max(opset))
    weights = _WEIGHTS[mode]
    if skip:
        # sentence-transformers weighs a token by its place in the row, not among the counted tokens.
        weights = weights.replace("Mul (count, mask)", "Mul (place, mask)")
    return weights + _WEIGHTED_SUM.replace("{reduce}", _reduce_sum(opset))


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


def rerank_pooled(
    *, activation: str, pooling: str, width: int | None, opset: int, layers: Sequence[Layer]
) -> str:
    """Token vectors, pooled and reduced by ``layers`` to one value [batch, 1] → score."""
    inputs, body, _ = _vector(pooling, width, opset, layers)
    return f"""rerank ({", ".join(inputs)}) => (float[B, 1] score) {{
    {body}
    logits32 = Identity (pooled)
    {ACTIVATIONS[activation]}
    score = Identity (scores)
}}"""
