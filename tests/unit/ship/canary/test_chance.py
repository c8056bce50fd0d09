"""Probabilities beside sums over all outcomes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.ship.canary import chance


@given(st.integers(0, 40), st.integers(1, 40), st.floats(0.001, 0.999))
def test_binomial_tail(hits: int, trials: int, share: float) -> None:
    exact = sum(
        math.comb(trials, number) * share**number * (1 - share) ** (trials - number)
        for number in range(max(0, hits), trials + 1)
    )
    assert chance.binomial(hits, trials, share) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 30), st.integers(0, 30))
def test_hypergeometric_tail(hits: int, trials: int, other_hits: int, other_trials: int) -> None:
    hits, other_hits = min(hits, trials), min(other_hits, other_trials)
    together, hit = trials + other_trials, hits + other_hits
    exact = sum(
        math.comb(hit, number) * math.comb(together - hit, trials - number) / math.comb(together, trials)
        for number in range(hits, min(hit, trials) + 1)
        if trials - number <= together - hit
    )
    assert chance.hypergeometric(hits, trials, other_hits, other_trials) == pytest.approx(
        exact, rel=1e-6, abs=1e-12
    )


def test_ends() -> None:
    assert chance.binomial(0, 10, 0.0) == 1.0
    assert chance.binomial(1, 10, 0.0) == 0.0
    assert chance.binomial(3, 10, 1.0) == 1.0
    assert chance.binomial(11, 10, 0.5) == 0.0
    assert chance.hypergeometric(0, 5, 0, 0) == 1.0
    assert chance.hypergeometric(12, 1_000_000, 10, 1_000_000) > chance.BEYOND


@pytest.mark.parametrize(
    ("first", "second", "probability"),
    [
        ({"a": 10, "b": 20}, {"a": 20, "b": 10}, 0.0098),  # chi-squared 6.667, 1 degree of freedom
        ({"a": 30, "b": 20, "c": 10}, {"a": 20, "b": 20, "c": 20}, 0.0695),  # 5.333, 2
        ({"a": 10, "b": 20}, {"a": 100, "b": 200}, 0.95),  # exactly 1
        ({"a": 50}, {"a": 10}, 1.0),
        ({"a": 50}, {}, 1.0),
    ],
)
def test_homogeneity(first: dict[str, float], second: dict[str, float], probability: float) -> None:
    # Wilson and Hilferty's is an approximation.
    assert chance.homogeneity(first, second) == pytest.approx(probability, abs=0.003)
    assert chance.homogeneity({"a": 30, "b": 30}, {"a": 30}) < chance.BEYOND
