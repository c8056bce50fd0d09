"""Chance: how likely counts are that two equally good servers would give."""

from __future__ import annotations

import math

BEYOND = 0.0002
"""Probability below which a count is not taken for chance: it is looked at every second."""
_LEAST = 1e-12
"""Share of the sum so far below which further terms do not matter."""


def binomial(hits: int, trials: int, share: float) -> float:
    """Probability of at least ``hits`` of ``trials`` where each is one with probability ``share``."""
    if hits <= 0:
        return 1.0
    if hits > trials or share <= 0:
        return 0.0
    if share >= 1:
        return 1.0
    total = 0.0
    for number in range(hits, trials + 1):
        term = math.exp(
            _choose(trials, number) + number * math.log(share) + (trials - number) * math.log1p(-share)
        )
        total += term
        if number > trials * share and term < _LEAST * total:
            break
    return min(1.0, total)


def hypergeometric(hits: int, trials: int, other_hits: int, other_trials: int) -> float:
    """Probability of at least ``hits`` here, if all hits were spread over both sides by chance.

    Fisher's exact test, one-sided: https://en.wikipedia.org/wiki/Fisher%27s_exact_test.
    """
    together, hit = trials + other_trials, hits + other_hits
    if hits <= 0:
        return 1.0
    if hits > trials:
        return 0.0
    whole, total, mean = _choose(together, trials), 0.0, hit * trials / together
    for number in range(hits, min(hit, trials) + 1):
        if trials - number > together - hit:
            continue
        term = math.exp(_choose(hit, number) + _choose(together - hit, trials - number) - whole)
        total += term
        if number > mean and term < _LEAST * total:
            break
    return min(1.0, total)


def _choose(whole: int, part: int) -> float:
    """Logarithm of the number of ways to choose ``part`` of ``whole``."""
    return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)
