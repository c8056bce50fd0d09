"""Rules of a canary, as data: what is compared, the limit, and the same comparison in PromQL.

``trb canary`` computes them from metrics pages; ``trb export kubernetes`` renders the PromQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triton_repo_builder.repository import reference
from triton_repo_builder.run.observe import drift
from triton_repo_builder.ship.monitoring.source import pattern
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import Rules

FAILURES, P99, LABELS, ANSWERS = "failures", "p99", "labels", "answers"
DIFFERENCE, RATIO, VALUE = "canary - stable", "canary / stable", "between both"
QUANTILE = 0.99


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One comparison; it breaks if its value is above the limit."""

    name: str
    about: str
    compares: str
    """DIFFERENCE, RATIO or VALUE: how the two sides make one number."""
    limit: float

    def value(self, stable: float, canary: float) -> float:
        """The number that the limit is for. A ratio to 0 is infinite."""
        if self.compares == DIFFERENCE:
            return canary - stable
        if self.compares == RATIO:
            return canary / stable if stable else float("inf") if canary else 1.0
        return canary


@dataclass(frozen=True, kw_only=True)
class Query:
    """A rule in PromQL. Without enough requests each of these expressions has no result."""

    rule: Rule
    stable: str
    """The stable side's number; empty for VALUE."""
    canary: str
    """The canary's number; empty for VALUE."""
    value: str
    """The number that the limit is for: good if it is at most ``rule.limit``."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Label matchers in PromQL of the two servers' series, such as ``service="bert-canary"``."""

    stable: str
    canary: str


def of(rules: Rules) -> tuple[Rule, ...]:
    """The rules of ``[canary.rules]``."""
    return (
        Rule(
            name=FAILURES,
            about="share of failed requests, above the stable version's",
            compares=DIFFERENCE,
            limit=rules.failures,
        ),
        Rule(
            name=P99,
            about="99th percentile of the latency, as a multiple of the stable version's",
            compares=RATIO,
            limit=rules.p99,
        ),
        Rule(
            name=LABELS,
            about="population stability index of labels, lengths and confidence",
            compares=VALUE,
            limit=rules.labels,
        ),
        Rule(
            name=ANSWERS,
            about="share of answers that differ from the stable version's to the same request",
            compares=VALUE,
            limit=rules.answers,
        ),
    )


def queries(deployment: Deployment, sides: Sides, *, window: str, requests: int) -> tuple[Query, ...]:
    """The rules in PromQL, of the servers' own metrics; ``answers`` of the gateway's (``--shadow``).

    ``window``: a duration of PromQL, such as ``5m``. ``requests``: fewest requests of each side in it.
    p99 needs ``--metrics-config=summary_latencies=true``.
    """
    by_name = {rule.name: rule for rule in of(deployment.spec.canary.rules)}
    enough = " and ".join(
        f"{_answered(deployment, side, window)} >= {requests}" for side in (sides.stable, sides.canary)
    )
    parts = {
        FAILURES: [_failed(deployment, side, window) for side in (sides.stable, sides.canary)],
        P99: [_p99(deployment, side, window) for side in (sides.stable, sides.canary)],
    }
    compared = [
        Query(
            rule=by_name[name],
            stable=stable,
            canary=canary,
            value=f"(({canary}) {'-' if name == FAILURES else '/'} ({stable})) and {enough}",
        )
        for name, (stable, canary) in parts.items()
    ]
    endpoints = f'endpoint=~"{pattern(deployment.endpoints)}"'
    different, answers = (
        f"sum(increase(trb_shadow_answers_total{{{matchers}}}[{window}]))"
        for matchers in (f'{endpoints},agreement="different"', endpoints)
    )
    return (
        *compared,
        Query(
            rule=by_name[LABELS],
            stable="",
            canary="",
            value=f"max({' or '.join(_indices(sides, window))}) and {enough}",
        ),
        Query(
            rule=by_name[ANSWERS], stable="", canary="", value=f"({different} or vector(0)) / ({answers} > 0)"
        ),
    )


def _models(names: Sequence[str]) -> str:
    return f'model=~"{pattern(names)}"'


def _answered(deployment: Deployment, side: str, window: str) -> str:
    """Requests, failed ones included: a canary that fails always has enough of them."""
    matchers = f"{_models(deployment.endpoints)},{side}"
    success = f"sum(increase(nv_inference_request_success{{{matchers}}}[{window}])) or vector(0)"
    return f"(({success}) + {_failures(deployment, side, window)})"


def _failures(deployment: Deployment, side: str, window: str) -> str:
    """Failed requests. tritonserver counts an ensemble's failures twice (24.10 to 26.06)."""
    ensembles = {model.name for model in deployment.repository.models if model.steps}
    groups = (
        ([name for name in deployment.endpoints if name in ensembles], " / 2"),
        ([name for name in deployment.endpoints if name not in ensembles], ""),
    )
    return " + ".join(
        f"(sum(increase(nv_inference_request_failure{{{_models(names)},{side}}}[{window}])){times}"
        " or vector(0))"
        for names, times in groups
        if names
    )


def _failed(deployment: Deployment, side: str, window: str) -> str:
    failures = _failures(deployment, side, window)
    return f"({failures}) / ({_answered(deployment, side, window)} > 0)"


def _p99(deployment: Deployment, side: str, window: str) -> str:
    """Seconds: tritonserver's summary is the last minute's p99; the slowest replica's mean over the window.

    Its histogram, ``nv_inference_first_response_histogram_ms``, cannot replace it: some releases have it for
    decoupled models only. A minute without requests is NaN, and does not count.
    """
    matchers = f'quantile="{QUANTILE}",{_models(deployment.endpoints)},{side}'
    return f"max(avg_over_time((nv_inference_request_summary_us{{{matchers}}} > 0)[{window}:15s])) / 1e6"


def _indices(sides: Sides, window: str) -> list[str]:
    """The population stability index of each metric, by model. Cumulative steps of a histogram
    become shares first: a bucket's count less the count of the one below it."""
    parts = []
    for metric, series in drift.COUNTERS.items():
        label = "label" if metric == reference.ANSWERS else "le"
        if label == "label":
            counts = [
                f"sum by (model, label) (increase({series}{{{side}}}[{window}]))"
                for side in (sides.stable, sides.canary)
            ]
            parts.append(_psi(counts, label, metric))
            continue
        names = reference.buckets(metric)
        histograms = []
        for side in (sides.stable, sides.canary):
            steps = []
            for below, name in zip(("", *names[:-1]), names, strict=True):
                at, under = (
                    f'sum by (model) (increase({series}{{le=~"{_bound(bound)}",{side}}}[{window}]))'
                    if bound
                    else ""
                    for bound in (name, below)
                )
                count = f"{at} - {under}" if under else at
                steps.append(f'label_replace({count}, "le", "{name}", "", "")')
            histograms.append("(" + " or ".join(steps) + ")")
        parts.append(_psi(histograms, label, metric))
    return parts


def _bound(name: str) -> str:
    """A bucket's bound as servers and Prometheus 3 write it: 4, 4.0, +Inf."""
    return r"\\+Inf" if name == reference.INFINITE else rf"{name.replace('.', '[.]')}([.]0)?"


def _psi(counts: Sequence[str], label: str, metric: str) -> str:
    """The index of two sets of counts; a bucket that one side lacks has drift's least share."""
    shares = []
    for part, other in (counts, counts[::-1]):
        share = f"({part}) / on (model) group_left () (sum by (model) ({part}) > 0)"
        shares.append(f"clamp_min(({share}) or 0 * ({other}), {drift.FLOOR:.4f})")
    stable, canary = shares
    inner = f"({canary} - {stable}) * ln({canary} / {stable})"
    return f'label_replace(sum by (model) ({inner}), "metric", "{metric}", "", "")'
