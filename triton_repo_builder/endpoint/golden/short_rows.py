"""Whether a graph runs on rows shorter than the golden cases: it may contain the example's length.

torch.onnx.export makes a constant of a length that Python computes from the example text, as ``len(tensor)``.
Such a graph has dynamic axes and answers wrongly at every other length. It fails only on rows much shorter
than the example (Funnel: less than half of it).
"""

from __future__ import annotations

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.endpoint.golden import text
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.tasks.support.examples import SINGLE
from triton_repo_builder.endpoint.tasks.task import Encoded, TaskPlan
from triton_repo_builder.model.read.source import Source

LENGTHS = (2, 3, 8)
"""Tokens of a row, besides the fewest that a request can make."""
KEPT = (
    "a request can be that short. The export has probably kept the length of its example text, and is wrong "
    "at every other length, too: export it again with optimum or torch.onnx.export(dynamo=True), and compare "
    "it with the original model at two lengths"
)


def note(model: OriginalModel, source: Source, task: TaskPlan, settings: text.TokenizerSettings) -> str:
    """Say that the graph fails on rows that are too short for a request; empty if it does not.

    Raises ``TrbError`` if it fails on rows that a request can make.
    """
    if settings.pad_to:
        return ""
    tokenizer = text.library(source)
    names, texts = zip(*(task.examples or SINGLE)[0][1].items(), strict=True)
    encoded = [
        rows[0]
        for example in (dict.fromkeys(names, ("a",)), dict(zip(names, texts, strict=True)))
        if (rows := text.encoded(task, tokenizer, example, settings.max_length))
    ]
    if not encoded:
        return ""
    fewest, most = sorted((len(encoded[0]["input_ids"]), len(encoded[-1]["input_ids"])))
    failed = []
    for length in sorted({*LENGTHS, fewest}):
        if 2 <= length <= most:
            try:
                text.run_rows(model, source, [_cut(encoded[-1], length)], settings)
            except TrbError as error:
                if length >= fewest:
                    raise TrbError(error.code, error.message, where=error.where, remedy=KEPT) from None
                failed.append(length)
    if not failed:
        return ""
    shown = " and ".join(map(str, failed))
    return (
        f"the graph fails on {shown} tokens, fewer than a request makes: if the export kept the length of "
        "its example text, it is wrong at every other length; compare it with the original at two lengths"
    )


def _cut(row: Encoded, length: int) -> Encoded:
    """The row with fewer tokens; its last one, the end, stays."""
    return {name: [*row[name][: length - 1], *row[name][-1:]] for name in ("input_ids", "token_type_ids")}
