"""Chance: how likely counts are that two equally good servers would give."""

from __future__ import annotations

import math
from collections.abc import Mapping

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


def homogeneity(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Probability that two counts of one distribution differ at least so much; 1 without counts.

    Pearson's chi-squared test, https://en.wikipedia.org/wiki/Pearson%27s_chi-squared_test, with the tail of
    Wilson and Hilferty: https://en.wikipedia.org/wiki/Chi-squared_distribution.
    """
    totals = [sum(counts.values()) for counts in (first, second)]
    names = {name for counts in (first, second) for name, count in counts.items() if count}
    if not all(totals) or len(names) < 2:
        return 1.0
    statistic = 0.0
    for name in names:
        count = first.get(name, 0.0) + second.get(name, 0.0)
        for counts, total in zip((first, second), totals, strict=True):
            expected = count * total / sum(totals)
            statistic += (counts.get(name, 0.0) - expected) ** 2 / expected
    spread = 2 / (9 * (len(names) - 1))
    score = ((statistic / (len(names) - 1)) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(score / math.sqrt(2))


def _choose(whole: int, part: int) -> float:
    """Logarithm of the number of ways to choose ``part`` of ``whole``."""
    return math.lgamma(whole + 1) - math.lgamma(part + 1) - math.lgamma(whole - part + 1)
