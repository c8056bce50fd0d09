"""The measures of labelled examples, as papers define them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BEST = 10
"""Number of ranked documents that nDCG counts."""


def accuracy(predicted: Sequence[str], right: Sequence[str]) -> float:
    """Share of labels that are right."""
    return float(np.mean([label == expected for label, expected in zip(predicted, right, strict=True)]))


def macro_f1(predicted: Sequence[str], right: Sequence[str]) -> float:
    """Mean of the F1 of each label that is predicted or right, however rare (scikit-learn's ``macro``)."""
    scores = []
    for label in sorted({*predicted, *right}):
        is_predicted, is_right = (
            [predicted_label == label for predicted_label in labels] for labels in (predicted, right)
        )
        hits = sum(a and b for a, b in zip(is_predicted, is_right, strict=True))
        scores.append(2 * hits / (sum(is_predicted) + sum(is_right)))
    return float(np.mean(scores))


def overlap_f1(pairs: Sequence[tuple[Counter[Any], Counter[Any]]]) -> float:
    """F1 over all (predicted, right) pairs together; 1 if there is nothing to find and nothing was found."""
    hits = sum(sum((predicted & right).values()) for predicted, right in pairs)
    most = sum(sum(predicted.values()) + sum(right.values()) for predicted, right in pairs)
    return 2 * hits / most if most else 1.0


def cosine(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    """Cosine of two vectors; 0 if one of them is 0."""
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / size if size else 0.0


def spearman(predicted: Sequence[float], right: Sequence[float]) -> float:
    """Correlation of the ranks; equal numbers share the mean of theirs. 0 if all are equal."""
    ranks, right_ranks = _ranks(predicted), _ranks(right)
    ranks, right_ranks = ranks - ranks.mean(), right_ranks - right_ranks.mean()
    size = float(np.sqrt((ranks @ ranks) * (right_ranks @ right_ranks)))
    return float(ranks @ right_ranks) / size if size else 0.0


def _ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks


def ndcg(scores: Sequence[float], relevance: Sequence[float]) -> float:
    """Gain of the best documents in the order of the scores, over the gain of the best order."""
    gains = np.asarray(relevance, np.float64)
    weights = 1 / np.log2(np.arange(2, 2 + min(BEST, len(gains))))
    gain = gains[np.argsort(-np.asarray(scores), kind="stable")][: len(weights)] @ weights
    best = np.sort(gains)[::-1][: len(weights)] @ weights
    return float(gain / best) if best else 1.0


def answers(predicted: Sequence[str], right: Sequence[str]) -> dict[str, float]:
    """Exact match and F1 of words, normalised as SQuAD's script does."""
    pairs = [(_words(answer), _words(expected)) for answer, expected in zip(predicted, right, strict=True)]
    f1 = [overlap_f1([(Counter(answer), Counter(expected))]) for answer, expected in pairs]
    return {
        "exact match": float(np.mean([answer == expected for answer, expected in pairs])),
        "F1": float(np.mean(f1)),
    }


def _words(text: str) -> list[str]:
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()
