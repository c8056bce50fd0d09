"""How far two answers of one endpoint agree: by direction, label, order or text, as its task has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.triton import Answer, joined, rows

CLOSE = 0.99
"""Cosine from which two vectors count as the same; int8 weights stay above it."""
COSINE = "cosine"
SCORE = "score"


@dataclass(frozen=True)
class Agreement:
    """One request's comparison."""

    same: Sequence[bool] = ()
    """For each row whether the answers agree; of a reranked list one for the order."""
    values: Sequence[float] = field(default=())
    """Cosines, or the largest difference of scores of each row."""


def measure(task: str) -> str:
    """Kind of ``Agreement.values``: ``cosine`` or ``score``."""
    return COSINE if task in VECTORS else SCORE


def compared(task: str, batched: bool, first: Sequence[Answer], second: Sequence[Answer]) -> Agreement:
    """The agreement of two answers to the same rows; answers of other shapes disagree."""
    if task == recognition.RERANK:
        return _order(joined(first, "score").ravel(), joined(second, "score").ravel())
    if task in (recognition.EMBEDDING, recognition.IMAGE_EMBEDDING):
        parts = [
            _embeddings(_matrix(left["embedding"], batched), _matrix(right["embedding"], batched))
            for left, right in zip(first, second, strict=True)
        ]
        return Agreement(
            [same for part in parts for same in part.same], [value for part in parts for value in part.values]
        )
    row = VECTORS.get(task) or LABELS.get(task) or _texts
    pairs = [row(left, right) for left, right in _pairs(batched, first, second)]
    return Agreement([same for same, _ in pairs], [value for _, value in pairs if value is not None])


def _pairs(
    batched: bool, first: Sequence[Answer], second: Sequence[Answer]
) -> Iterator[tuple[Answer, Answer]]:
    """The rows of both answers; an endpoint without batches answers one row at a time."""
    return zip(rows(first), rows(second), strict=True) if batched else zip(first, second, strict=True)


def _matrix(array: Any, batched: bool) -> Any:
    return array.reshape(len(array), -1) if batched else array.reshape(1, -1)


def _embeddings(first: Any, second: Any) -> Agreement:
    if first.shape != second.shape:
        return Agreement([False] * len(first))
    left, right = first.astype(np.float64), second.astype(np.float64)
    products = np.einsum("ij,ij->i", left, right)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    # Two zero vectors are the same; one of them has no direction.
    equal = (left == right).all(axis=1)
    cosines = np.where(lengths > 0, products / np.where(lengths > 0, lengths, 1.0), equal.astype(float))
    # Rounding lifts some above 1.
    return Agreement((cosines >= CLOSE).tolist(), np.minimum(cosines, 1.0).tolist())


def _order(first: Any, second: Any) -> Agreement:
    if first.shape != second.shape:
        return Agreement([False])
    difference = [float(np.abs(first - second).max(initial=0.0))]
    if len(first) < 2:  # one document has no order
        return Agreement((), difference)
    same = np.array_equal(np.argsort(-first, kind="stable"), np.argsort(-second, kind="stable"))
    return Agreement([same], difference)


Row = Callable[[Answer, Answer], tuple[bool, float | None]]
"""Whether two rows agree, and the cosine or largest difference of scores if there is one."""


def _tokens(first: Answer, second: Answer) -> tuple[bool, float | None]:
    """Vectors of tokens that count, as one vector."""
    left, right = (
        answer["token_embeddings"][answer["mask"].astype(bool)].reshape(1, -1)
        if "mask" in answer
        else answer["token_embeddings"].reshape(1, -1)
        for answer in (first, second)
    )
    part = _embeddings(left, right)
    return part.same[0], next(iter(part.values), None)


def _sparse(first: Answer, second: Answer) -> tuple[bool, float | None]:
    left, right = (
        {
            index: value
            for index, value in zip(answer["indices"].ravel(), answer["values"].ravel(), strict=True)
            if value
        }
        for answer in (first, second)
    )
    keys = sorted(left.keys() | right.keys())
    vectors = [np.array([[values.get(key, 0.0) for key in keys]]) for values in (left, right)]
    part = _embeddings(*vectors)
    return part.same[0], part.values[0]


def _best(first: Answer, second: Answer) -> tuple[bool, float | None]:
    """The best label of each row or place, and the scores of labels that both answers have."""
    left, right = _scores(first), _scores(second)
    common = left.keys() & right.keys()
    difference = max((abs(left[key] - right[key]) for key in common), default=None)
    return _top(first, left) == _top(second, right), difference


def _scores(answer: Answer) -> dict[Any, float]:
    """Place and label, or number of the class → score."""
    for labels, scores in (("top_labels", "top_scores"), ("labels", "scores"), ("tokens", "scores")):
        if labels in answer and scores in answer:
            width = answer[labels].shape[-1] or 1
            named = zip(answer[labels].ravel().tolist(), answer[scores].ravel().tolist(), strict=True)
            return {(place // width, label): score for place, (label, score) in enumerate(named)}
    if "scores" in answer:
        return dict(enumerate(answer["scores"].ravel().tolist()))
    # The score of another label is another number.
    return dict(zip(_top(answer, {}), answer.get("score", np.empty(0)).ravel().tolist(), strict=False))


def _top(answer: Answer, scores: Mapping[Any, float]) -> tuple[Any, ...]:
    for name in ("label", "top_labels", "labels", "tokens"):
        if name in answer:
            labels = answer[name]
            return tuple(labels.reshape(-1, labels.shape[-1] or 1)[:, 0].tolist())
    return (max(scores, key=lambda key: scores[key]),) if scores else ()


def _texts(first: Answer, second: Answer) -> tuple[bool, float | None]:
    """The strings without padding; ``entities`` repeats them with scores in JSON."""
    same = _strings(first) == _strings(second)
    scores = [
        answer["score" if "score" in answer else "scores"].ravel()
        for answer in (first, second)
        if "score" in answer or "scores" in answer
    ]
    if not same or len(scores) != 2 or scores[0].shape != scores[1].shape or not scores[0].size:
        return same, None
    return same, float(np.abs(scores[0] - scores[1]).max())


def _strings(answer: Answer) -> dict[str, list[bytes]]:
    return {
        name: [text for text in array.ravel().tolist() if text]
        for name, array in answer.items()
        if array.dtype.kind == "O" and name != "entities"
    }


VECTORS: Mapping[str, Row | None] = {
    recognition.EMBEDDING: None,
    recognition.IMAGE_EMBEDDING: None,
    recognition.SPARSE: _sparse,
    recognition.LATE_INTERACTION: _tokens,
}
LABELS: Mapping[str, Row] = dict.fromkeys(
    (
        recognition.CLASSIFICATION,
        recognition.ZERO_SHOT,
        recognition.FILL_MASK,
        recognition.IMAGE_CLASSIFICATION,
        recognition.ZERO_SHOT_IMAGE,
        recognition.AUDIO_CLASSIFICATION,
    ),
    _best,
)
