"""The small graphs put after a vision model, in ONNX's own text form like ``pooling.py``."""

from __future__ import annotations

from triton_repo_builder.model.graph.heads.pooling import ACTIVATIONS, finished
from triton_repo_builder.repository import tensor_names

POOLINGS = ("cls", "mean", "pooler")


OLDEST_OPSET = 9


def classification(*, activation: str, labels: int, top: int, opset: int) -> str:
    """logits [batch, labels] → the best label and score, and the ``top`` best of both, best first.

    Equal scores come in the order of their labels, as TopK defines it. The names are the string
    initializer ``label_names``.
    """
    return f"""classify_image (float[B, {labels}] logits, string[{labels}] label_names)
        => (string[B, 1] label, float[B, 1] score, string[B, {top}] top_labels, float[B, {top}] top_scores) {{
    logits32 = Cast <to = 1> (logits)
    {ACTIVATIONS[activation]}
    {_top("score, best", 1, opset)}
    {_top("top_scores, places", top, opset)}
    label = Gather <axis = 0> (label_names, best)
    top_labels = Gather <axis = 0> (label_names, places)
}}"""


def _top(outputs: str, count: int, opset: int) -> str:
    """How many became an input in opset 10."""
    if opset < 10:
        return f"{outputs} = TopK <axis = 1, k = {count}> (scores)"
    constant = f"how_many_{count} = Constant <value = int64[1] {{{count}}}> ()"
    return f"{constant}\n    {outputs} = TopK <axis = 1> (scores, how_many_{count})"


def places(*, labels: int, shape: tuple[int, ...]) -> str:
    """logits [batch, labels, rows, columns] → the same in single precision: the label map comes after."""
    rows, columns = (size if size > 0 else axis for size, axis in zip(shape, "RC", strict=True))
    sizes = f"[B, {labels}, {rows}, {columns}]"
    return f"""segment_image (float{sizes} logits) => (float{sizes} {tensor_names.SCORES}) {{
    {tensor_names.SCORES} = Cast <to = 1> (logits)
}}"""


# GlobalAveragePool takes [batch, channels, ...] and is the same in every opset.
_AVERAGE = """
    averaged = GlobalAveragePool (mean_of)
    flat = Constant <value = int64[2] {0, -1}> ()
    pooled = Reshape (averaged, flat)
"""
_CLS = """
    row = Constant <value = int64 {0}> ()
    pooled = Gather <axis = 1> (hidden32, row)
"""


def embedding(*, pooling: str, rank: int, normalise: bool, width: int | None) -> str:
    """hidden → embedding [batch, width].

    ``rank`` 2: pooled by the model. 3: token vectors [batch, tokens, width], the first one (``cls``) or
    their ``mean``. 4: [batch, width, rows, columns], the mean over all places, which is the vector
    itself if the model has pooled to one place.
    """
    size = width or "W"
    shapes = {2: f"[B, {size}]", 3: f"[B, T, {size}]", 4: f"[B, {size}, R, C]"}
    body = "hidden32 = Cast <to = 1> (hidden)\n"
    if rank == 2:
        body += "pooled = Identity (hidden32)\n"
    elif rank == 3 and pooling == "cls":
        body += _CLS
    else:
        columns = "Transpose <perm = [0, 2, 1]>" if rank == 3 else "Identity"
        body += f"mean_of = {columns} (hidden32)\n" + _AVERAGE
    body += finished(normalise=normalise)
    return f"embed_image (float{shapes[rank]} hidden) => (float[B, {size}] embedding) {{{body}}}"
