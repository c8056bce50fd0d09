"""Labels of a text or image in the order of their scores: the rules of transformers' zero-shot pipelines.

``answer.py`` beside ``model.py``. Parameter: ``multi_label`` (``true``: each label for itself). Needs only
numpy.
"""

from pathlib import Path
from typing import Any

import numpy as np


class Answer:
    """LABELS, trb_logits → labels and scores.

    trb_logits [labels or more, 2]: contradiction and entailment; [labels or more]: likeness to an image.
    """

    def __init__(self, parameters: dict[str, str], folder: Path) -> None:
        """Whether several labels can be true at once."""
        self.multi_label = parameters.get("multi_label", "") == "true"

    def answer(self, row: dict[str, Any]) -> dict[str, Any]:
        """The labels of one row, best first."""
        labels = [label for label in row["LABELS"].tolist() if label]
        logits = row["trb_logits"][: len(labels)].astype(np.float32)
        if logits.ndim == 1:
            scores = 1 / (1 + np.exp(-logits)) if self.multi_label else softmax(logits, 0)
            # Of equal scores that pipeline keeps the order; the one for texts turns it around.
            order = np.argsort(-scores, kind="stable")
            return {"labels": [labels[place] for place in order], "scores": scores[order]}
        if self.multi_label or len(labels) == 1:
            scores = softmax(logits, 1)[:, 1]
        else:
            scores = softmax(logits[:, 1], 0)
        order = scores.argsort()[::-1]
        return {"labels": [labels[place] for place in order], "scores": scores[order]}


def watch(metrics: Any) -> Any:
    """Best labels and their scores."""
    answers, confidence = metrics.answers(), metrics.confidence()

    def count(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            answers(row["labels"][0].decode())
            confidence(float(row["scores"][0]))

    return count


def softmax(values: Any, axis: int) -> Any:
    """Shares that add up to 1 along ``axis``."""
    shares = np.exp(values - values.max(axis=axis, keepdims=True))
    return shares / shares.sum(axis=axis, keepdims=True)
