"""The head of late interaction (ColBERT): token vectors projected, each normalised, and which count."""

from __future__ import annotations

# x / max(|x|, 1e-12), as torch.nn.functional.normalize, for every token.
_BODY = """
    hidden32 = Cast <to = 1> (hidden)
    {project}
    {length}
    smallest = Constant <value = float {{1e-12}}> ()
    length_safe = Max (length, smallest)
    unit = Div (projected, length_safe)
    {count}
    as_column = Constant <value = int64[3] {{0, -1, 1}}> ()
    column = Reshape (counts, as_column)
    token_embeddings = Mul (unit, column)
    mask = Cast <to = 6> (counts)
"""


def head(
    *, width: int | None, out: int | None, project: bool, keep: int | None, expanded: bool, opset: int
) -> str:
    """hidden [batch, tokens, width], attention_mask → token_embeddings [batch, tokens, out], mask int32.

    With ``project`` a float input ``projection`` [width, out]; with ``keep`` a float input ``kept_tokens``
    [keep], 0 for the ids whose vectors do not count, and ``input_ids``. ``expanded``: every vector counts,
    padding included.
    """
    inputs = [f"float[B, T, {width or 'W'}] hidden", "int64[B, T] attention_mask"]
    count = "counts = Cast <to = 1> (attention_mask)"
    if expanded:
        count = "always = Equal (attention_mask, attention_mask)\n    counts = Cast <to = 1> (always)"
    elif keep is not None:
        inputs += ["int64[B, T] input_ids", f"float[{keep}] kept_tokens"]
        count = """mask32 = Cast <to = 1> (attention_mask)
    looked_up = Gather <axis = 0> (kept_tokens, input_ids)
    counts = Mul (mask32, looked_up)"""
    if project:
        inputs.append(f"float[{width or 'W'}, {out or 'D'}] projection")
    body = _BODY.format(
        project=f"projected = {'MatMul (hidden32, projection)' if project else 'Identity (hidden32)'}",
        length=_length(opset),
        count=count,
    )
    outputs = f"float[B, T, {out or width or 'W'}] token_embeddings, int32[B, T] mask"
    return f"late ({', '.join(inputs)}) => ({outputs}) {{{body}}}"


def _length(opset: int) -> str:
    """The axes of ReduceL2 became an input in opset 18."""
    if opset < 18:
        return "length = ReduceL2 <axes = [2], keepdims = 1> (projected)"
    return "axes = Constant <value = int64[1] {2}> ()\n    length = ReduceL2 <keepdims = 1> (projected, axes)"
