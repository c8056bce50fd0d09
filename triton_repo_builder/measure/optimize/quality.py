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
"""Documents that nDCG looks at."""


def accuracy(given: Sequence[str], right: Sequence[str]) -> float:
    """Share of labels that are right."""
    return float(np.mean([own == other for own, other in zip(given, right, strict=True)]))


def macro_f1(given: Sequence[str], right: Sequence[str]) -> float:
    """Mean of the F1 of each label that is given or right, however rare (scikit-learn's ``macro``)."""
    scores = []
    for label in sorted({*given, *right}):
        own, other = ([one == label for one in labels] for labels in (given, right))
        both = sum(a and b for a, b in zip(own, other, strict=True))
        scores.append(2 * both / (sum(own) + sum(other)))
    return float(np.mean(scores))


def overlap_f1(pairs: Sequence[tuple[Counter[Any], Counter[Any]]]) -> float:
    """F1 over all (given, right) together; 1 if there is nothing to find and nothing was found."""
    both = sum(sum((given & right).values()) for given, right in pairs)
    most = sum(sum(given.values()) + sum(right.values()) for given, right in pairs)
    return 2 * both / most if most else 1.0


def cosine(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Cosine of two vectors; 0 if one of them is 0."""
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / size if size else 0.0


def spearman(given: Sequence[float], right: Sequence[float]) -> float:
    """Correlation of the ranks; equal numbers share the mean of theirs. 0 if all are equal."""
    own, other = _ranks(given), _ranks(right)
    own, other = own - own.mean(), other - other.mean()
    size = float(np.sqrt((own @ own) * (other @ other)))
    return float(own @ other) / size if size else 0.0


def _ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks


def ndcg(scores: Sequence[float], relevance: Sequence[float]) -> float:
    """Gain of the best documents in the order of the scores, over that of the best order."""
    gains = np.asarray(relevance, np.float64)
    weights = 1 / np.log2(np.arange(2, 2 + min(BEST, len(gains))))
    own = gains[np.argsort(-np.asarray(scores), kind="stable")][: len(weights)] @ weights
    best = np.sort(gains)[::-1][: len(weights)] @ weights
    return float(own / best) if best else 1.0


def answers(given: Sequence[str], right: Sequence[str]) -> dict[str, float]:
    """Exact match and F1 of words, normalised as SQuAD's script does."""
    pairs = [(_words(own), _words(other)) for own, other in zip(given, right, strict=True)]
    f1 = [overlap_f1([(Counter(own), Counter(other))]) for own, other in pairs]
    return {"exact match": float(np.mean([own == other for own, other in pairs])), "F1": float(np.mean(f1))}


def _words(text: str) -> list[str]:
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()
