"""Verdicts: the rules of a canary on what was counted so far.

A share that is above its limit breaks its rule at once if chance would not give it, and at the end of a step
in any case. A p99 of a few hundred requests is the time of the few slowest, so it breaks its rule only beyond
chance: if the canary has more requests slower than ``limit`` times the stable p99 than 1 % explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from triton_repo_builder.run.observe import drift
from triton_repo_builder.ship.canary import chance
from triton_repo_builder.ship.canary.sample import Answers, Key, Side
from triton_repo_builder.ship.targets.canary_rules import ANSWERS, FAILURES, LABELS, P99, QUANTILE, Rule

MEDIAN = 0.5
TRAFFIC, GOLDEN, SHADOW = "traffic", "golden cases", "shadow"
OK, BROKEN, CHANCE, UNSURE, NONE = "ok", "broken", "by chance", "too few", "no data"
"""States of a verdict. CHANCE: above the limit, but equally good servers would often differ so much."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One rule on one source of requests."""

    rule: Rule
    source: str
    """TRAFFIC, GOLDEN or SHADOW."""
    state: str
    """OK, BROKEN, CHANCE, UNSURE or NONE."""
    stable: float | None = None
    canary: float | None = None
    """Numbers of the two sides: a share, or seconds."""
    value: float | None = None
    """The number that the limit is for."""
    requests: int = 0
    """Requests, texts or compared answers of the canary."""
    detail: str = ""
    quantile: float | None = None
    """Quantile of the latency that was judged: 0.99 or 0.5."""

    @property
    def broken(self) -> bool:
        """Whether the canary is to be taken back."""
        return self.state == BROKEN


def failures(rule: Rule, source: str, stable: Side, canary: Side, *, final: bool) -> Verdict:
    """Failed requests."""
    sides = (stable.sample, canary.sample)
    if not canary.sample.requests:
        return Verdict(rule=rule, source=source, state=NONE)
    shares = tuple(sample.share for sample in sides)
    value = rule.value(*shares)
    allowed = min(1.0, shares[0] + rule.limit)
    beyond = chance.binomial(canary.sample.failures, canary.sample.requests, allowed) < chance.BEYOND
    return Verdict(
        rule=rule,
        source=source,
        state=_state(value > rule.limit, final or beyond),
        stable=shares[0],
        canary=shares[1],
        value=value,
        requests=canary.sample.requests,
        detail=f"{canary.sample.failures:,} of {canary.sample.requests:,} failed",
    )


def latency(
    rule: Rule, source: str, stable: Side, canary: Side, *, quantiles: Sequence[float] = (QUANTILE, MEDIAN)
) -> Verdict:
    """The 99th percentile, and by the same limit the median: on a busy machine a p99 is mostly noise.

    The first quantile that breaks the rule gives the verdict, else the p99.
    """
    verdicts = [_quantile(rule, source, stable, canary, share) for share in quantiles]
    return next((verdict for verdict in verdicts if verdict.broken), verdicts[0])


def _quantile(rule: Rule, source: str, stable: Side, canary: Side, share: float) -> Verdict:
    before, now = stable.sample.quantile(share), canary.sample.quantile(share)
    requests = canary.sample.answered
    if not before or now is None:
        return Verdict(rule=rule, source=source, state=NONE, stable=before, canary=now, requests=requests)
    slower, other = canary.sample.above(rule.limit * before), stable.sample.above(before)
    probability = chance.hypergeometric(slower, requests, other, stable.sample.answered)
    value = rule.value(before, now)
    return Verdict(
        rule=rule,
        source=source,
        state=_state(value > rule.limit, probability < chance.BEYOND),
        stable=before,
        canary=now,
        value=value,
        requests=requests,
        detail=f"{slower:,} of {requests:,} above {1000 * rule.limit * before:.1f} ms",
        quantile=share,
    )


def _state(above: bool, counts: bool) -> str:
    return OK if not above else BROKEN if counts else CHANCE


def labels(rule: Rule, source: str, stable: Side, canary: Side) -> Verdict:
    """The largest population stability index among the distributions that both sides have."""
    indices = [
        _index(key, stable.counts[key], canary.counts[key], stable.texts[key], canary.texts[key], rule.limit)
        for key in stable.counts.keys() & canary.counts.keys()
    ]
    # Many rare values have a large index by chance: the index says how much, the test whether at all.
    other = {
        (each.model, each.metric)
        for each in indices
        if each.verdict == drift.DRIFTED_WORD
        and chance.homogeneity(*(side.counts[each.model, each.metric] for side in (stable, canary)))
        < chance.BEYOND
    }
    compared = sorted(
        (each for each in indices if each.psi is not None),
        key=lambda each: (
            (each.model, each.metric) in other,
            each.verdict == drift.DRIFTED_WORD,
            each.verdict != drift.FEW_TEXTS,
            each.psi or 0,
        ),
    )
    if not compared:
        detail = (
            "" if indices else "no model counts texts or answers (built with --metrics off, or not by trb)"
        )
        return Verdict(rule=rule, source=source, state=NONE, detail=detail)
    worst = compared[-1]
    few = worst.verdict in (drift.FEW_TEXTS, drift.SMALL_REFERENCE)
    return Verdict(
        rule=rule,
        source=source,
        state=_state(worst.verdict == drift.DRIFTED_WORD, bool(other)) if not few else UNSURE,
        value=worst.psi,
        requests=worst.texts,
        detail=f"{worst.metric.replace('_', ' ')} of {worst.model}" + (", too few texts" if few else ""),
    )


def _index(
    key: Key,
    stable: Mapping[str, float],
    canary: Mapping[str, float],
    stable_texts: float,
    canary_texts: float,
    limit: float,
) -> drift.Comparison:
    shares = [_shares(counts) for counts in (stable, canary)]
    return drift.Comparison(
        model=key[0],
        version="",
        metric=key[1],
        reference=shares[0],
        reference_texts=stable_texts,
        current=shares[1],
        texts=round(canary_texts) if shares[0] else 0,
        limit=limit,
    )


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}


def answers(rule: Rule, source: str, compared: Answers, *, final: bool) -> Verdict:
    """Answers to the same requests."""
    if not compared.compared:
        return Verdict(rule=rule, source=source, state=NONE)
    value = compared.different / compared.compared
    beyond = chance.binomial(compared.different, compared.compared, rule.limit) < chance.BEYOND
    return Verdict(
        rule=rule,
        source=source,
        state=_state(value > rule.limit, final or beyond),
        canary=value,
        value=value,
        requests=compared.compared,
        detail=f"{compared.different:,} of {compared.compared:,} differ"
        + (f"; {compared.example}" if compared.example else ""),
    )


def all_rules(
    rules: Sequence[Rule],
    *,
    traffic: tuple[Side, Side],
    golden: tuple[Side, Side],
    compared: Answers,
    shadow: Answers | None,
    final: bool,
    whole: bool,
    cached: bool,
) -> tuple[Verdict, ...]:
    """Every rule on each source that it has. Pairs: stable, canary.

    ``final``: the step ends. ``whole``: every golden case was compared at least once. ``cached``: the servers
    have response caches, of which the stable one's is fuller, so that medians say nothing.
    """
    quantiles = quantiles_of(cached)
    return tuple(
        verdict
        for rule in rules
        for verdict in _of_rule(rule, traffic, golden, compared, shadow, quantiles, final=final, whole=whole)
    )


def quantiles_of(cached: bool) -> tuple[float, ...]:
    """Quantiles of the latency that are judged; ``cached``: the servers have response caches."""
    return (QUANTILE,) if cached else (QUANTILE, MEDIAN)


def _of_rule(
    rule: Rule,
    traffic: tuple[Side, Side],
    golden: tuple[Side, Side],
    compared: Answers,
    shadow: Answers | None,
    quantiles: Sequence[float],
    *,
    final: bool,
    whole: bool,
) -> Iterator[Verdict]:
    has_golden = bool(golden[1].sample.requests)
    if rule.name == FAILURES:
        yield failures(rule, TRAFFIC, *traffic, final=final)
        if has_golden:
            yield failures(rule, GOLDEN, *golden, final=final)
    elif rule.name == P99:
        yield latency(rule, TRAFFIC, *traffic, quantiles=quantiles)
        if has_golden:
            yield latency(rule, GOLDEN, *golden, quantiles=quantiles)
    elif rule.name == LABELS:
        yield labels(rule, TRAFFIC, *traffic)
    elif rule.name == ANSWERS:
        yield answers(rule, GOLDEN, compared, final=whole)
        if shadow is not None:
            yield answers(rule, SHADOW, shadow, final=final)


def words(verdict: Verdict) -> str:
    """Both numbers and the limit."""
    rule = verdict.rule
    if rule.name == P99 and verdict.stable is not None and verdict.canary is not None:
        name = "median" if verdict.quantile == MEDIAN else rule.name
        times = "∞" if verdict.value is None or math.isinf(verdict.value) else f"{verdict.value:.2f}"
        return (
            f"{name} {1000 * verdict.canary:.1f} ms, {times} times the stable version's "
            f"{1000 * verdict.stable:.1f} ms (limit {rule.limit:g}; {verdict.detail})"
        )
    if rule.name == FAILURES and verdict.stable is not None and verdict.canary is not None:
        return (
            f"{_percent(verdict.canary)} of the requests failed, {_percent(verdict.stable)} of the stable "
            f"version's (limit {_percent(rule.limit)} more; {verdict.detail})"
        )
    if rule.name == LABELS and verdict.value is not None:
        return f"{verdict.detail}: population stability index {verdict.value:.2f} (limit {rule.limit:g})"
    if rule.name == ANSWERS and verdict.value is not None:
        return (
            f"{_percent(verdict.value)} of the answers differ from the stable version's "
            f"(limit {_percent(rule.limit)}; {verdict.detail})"
        )
    return verdict.detail or verdict.state


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
