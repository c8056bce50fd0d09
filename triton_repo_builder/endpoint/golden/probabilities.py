"""Scores that a graph gives and config.json promises as logits: seen in what the original model answers.

The head's softmax would flatten them, and a golden case, made by the same arithmetic, would pass. Of logits,
no text's are positive and sum up to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read.source import Source

NEAR = 1e-2
"""How far a sum of 16-bit shares of a large vocabulary may be from 1."""
FEWEST = 3
"""Rows that must all be shares."""


def refuse(
    source: Source,
    task: str,
    softmaxed: Sequence[str],
    runs: Sequence[tuple[Mapping[str, npt.NDArray[Any]], npt.NDArray[Any]]],
) -> None:
    """``TrbError`` UNSUPPORTED_MODEL if outputs that would get a softmax are shares; ``runs``: with masks."""
    for name in softmaxed:
        rows = [row for outputs, mask in runs for row in _rows(outputs[name], mask)]
        if len(rows) >= FEWEST and all(map(_shares, rows)):
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"the task {task} takes logits, and output '{name}' gives probabilities: each of "
                f"{len(rows):,} rows that it gave for the golden cases sums up to 1, and a softmax would "
                "flatten them",
                where=str(source.path),
                remedy="export the model without its last operators (optimum's export gives logits), or use "
                "--task tensor, or --raw-output for a text model",
            )


def _rows(array: npt.NDArray[Any], mask: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
    """Rows of the softmax: the last axis, at every place that is not padding."""
    wide = array.astype(np.float64)
    kept = wide[mask.astype(bool)] if wide.ndim > 2 and wide.shape[:2] == mask.shape else wide
    return list(kept.reshape(-1, wide.shape[-1]))


def _shares(row: npt.NDArray[Any]) -> bool:
    return len(row) > 1 and bool((row >= 0).all()) and abs(float(row.sum()) - 1) <= NEAR
