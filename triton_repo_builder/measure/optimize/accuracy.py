"""Differences between a candidate's answers and the original model's, and the gate on them.

Vectors are compared by cosine, decisions (labels, entities, spans, tokens, words) by the share that agrees,
a few scores by which is the largest, single ones by the order that they put the samples in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Answer = Mapping[str, npt.NDArray[Any]]

LOWEST = 3.0
"""Allowed fall of a cosine's 1 % quantile, as a multiple of the mean's: one odd text sets the worst."""
CHANGE = 20.0
"""Allowed change of a probability, as a multiple of the allowed fall of the agreement."""
FEW = 8
"""Numbers of an answer below which they are scores, not a vector."""
CLOSE = 0.01
"""Share of the range of all scores: scores nearer to each other have no order."""
ORDER = "order agreement"
NAMES = {
    "text-classification": "label agreement",
    "zero-shot-classification": "label agreement",
    "image-classification": "label agreement",
    "audio-classification": "label agreement",
    "token-classification": "entity agreement",
    "question-answering": "span agreement",
    "fill-mask": "top-k overlap",
    "sparse-embedding": "overlap of tokens",
    "object-detection": "overlap of labels",
    "semantic-segmentation": "agreement of pixels",
    "automatic-speech-recognition": "words that agree",
}


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """A candidate's answers beside the original's."""

    measure: str
    mean: float
    lowest: float | None = None
    """The 1 % quantile, of a cosine."""
    change: float | None = None
    """Largest change of a probability or score, of a decision."""
    difference: float = 0.0
    """Largest change of any number, in proportion to the largest (at least 1)."""

    @property
    def of_change(self) -> str:
        """The changing quantity: a score in proportion to the range of all, or a probability."""
        return "score" if self.measure == ORDER else "probability"

    def failure(self, most: float) -> str:
        """Reason if the loss exceeds ``most``; else empty."""
        lost = 1 - self.mean
        if not lost <= most:
            return f"{self.measure} {self.mean:.5f} is below {1 - most:.4g}"
        if self.lowest is not None and not 1 - self.lowest <= LOWEST * most:
            return f"1 % quantile of the {self.measure} {self.lowest:.5f} is below {1 - LOWEST * most:.4g}"
        if self.change is not None and not self.change <= CHANGE * most:
            return f"a {self.of_change} changes by {self.change:.3f}, more than {CHANGE * most:.3g}"
        return ""


EXACT = Accuracy(measure="", mean=1.0)


def compare(task: str, original: Sequence[Answer], candidate: Sequence[Answer]) -> Accuracy:
    """Answers to the same samples, each alone."""
    difference = _difference(original, candidate)
    first = original[0]
    decided = [name for name, array in first.items() if array.dtype.kind not in "f"]
    if decided and (task in NAMES or len(decided) == len(first)):
        pairs = zip(original, candidate, strict=True)
        shares = [
            np.mean([_overlap(answer[name], other[name]) for name in decided]) for answer, other in pairs
        ]
        change = _change(original, candidate) if task.endswith("classification") else None
        name = NAMES.get(task, "agreement")
        return Accuracy(measure=name, mean=float(np.mean(shares)), change=change, difference=difference)
    size = sum(array.size for array in first.values() if array.dtype.kind == "f")
    if 1 < size < FEW:
        pairs = zip(original, candidate, strict=True)
        mean = float(np.mean([_flat(answer).argmax() == _flat(other).argmax() for answer, other in pairs]))
        change = _change(original, candidate)
        return Accuracy(measure="same largest", mean=mean, change=change, difference=difference)
    if size == 1:
        ours, theirs = _column(original), _column(candidate)
        change = float(np.abs(ours - theirs).max()) / max(float(np.ptp(ours)), 1e-6)
        return Accuracy(measure=ORDER, mean=_order(ours, theirs), change=change, difference=difference)
    cosines = [
        _cosine(_flat(answer), _flat(other)) for answer, other in zip(original, candidate, strict=True)
    ]
    return Accuracy(
        measure="cosine",
        mean=float(np.mean(cosines)),
        lowest=float(np.quantile(cosines, 0.01)),
        difference=difference,
    )


def _flat(answer: Answer) -> npt.NDArray[np.float64]:
    floats = [array for array in answer.values() if array.dtype.kind == "f"]
    return np.concatenate([array.reshape(-1).astype(np.float64) for array in floats])


def _column(answers: Sequence[Answer]) -> npt.NDArray[np.float64]:
    return np.array([_flat(answer)[0] for answer in answers])


def _cosine(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    if first.shape != second.shape:
        return 0.0
    first, second = (np.where(np.isfinite(vector), vector, 0.0) for vector in (first, second))
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / size if size else float(np.array_equal(first, second))


def _overlap(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """Share of the entries that both have, in place for large arrays; 1 if both are empty."""
    if first.shape == second.shape and first.size > 4096:
        return float(np.mean(first == second))
    ours, theirs = (Counter(_words(array)) for array in (first, second))
    most = max(sum(ours.values()), sum(theirs.values()))
    return sum((ours & theirs).values()) / most if most else 1.0


def _words(array: npt.NDArray[Any]) -> list[Any]:
    """Entries; of a single text its words."""
    entries: list[Any] = array.reshape(-1).tolist()
    if len(entries) == 1 and isinstance(entries[0], (str, bytes)) and len(entries[0].split()) > 1:
        return list(entries[0].split())
    return entries


def _order(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    """Share of pairs of samples whose scores are in the same order; pairs as good as equal do not count."""
    ours, theirs = (scores[:, None] - scores[None, :] for scores in (first, second))
    counted = ours > CLOSE * np.ptp(first)
    return float(np.mean(theirs[counted] > 0)) if counted.any() else 1.0


def _change(original: Sequence[Answer], candidate: Sequence[Answer]) -> float | None:
    """Largest change of a float of answers of equal shape, over the range of all if that is more than 1.

    So a probability counts as it is, and a score without bounds in proportion. None without any.
    """
    floats = [array for answer in original for array in answer.values() if array.dtype.kind == "f"]
    spread = float(np.ptp(np.concatenate([array.reshape(-1) for array in floats]))) if floats else 0.0
    most = [
        float(np.abs(expected[name].astype(np.float64) - other[name]).max())
        for expected, other in zip(original, candidate, strict=True)
        for name in expected
        if expected[name].dtype.kind == "f"
        and expected[name].shape == other[name].shape
        and expected[name].size
    ]
    return max(most) / max(1.0, spread) if most else None


def _difference(original: Sequence[Answer], candidate: Sequence[Answer]) -> float:
    """``Accuracy.difference`` of two models' answers; numbers that are not finite do not count."""
    largest, most = 1.0, 0.0
    for answer, other in zip(original, candidate, strict=True):
        for name, array in answer.items():
            if array.dtype.kind != "f" or array.shape != other[name].shape:
                continue
            finite = np.isfinite(array) & np.isfinite(other[name])
            off = np.abs(array[finite].astype(np.float64) - other[name][finite])
            most = max(most, float(off.max(initial=0.0)))
            largest = max(largest, float(np.abs(array[finite]).max(initial=0.0)))
    return most / largest
