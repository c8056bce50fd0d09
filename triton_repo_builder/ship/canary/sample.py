"""Requests of each side within a window: how many, failed ones, times, and the distributions of answers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.repository import reference
from triton_repo_builder.run.observe import drift, exposition
from triton_repo_builder.run.observe.exposition import Page
from triton_repo_builder.ship.targets.canary_rules import QUANTILE
from triton_repo_builder.ship.targets.routes import BUCKETS, CANARY, STABLE

REQUESTS = "traefik_service_requests_total"
SECONDS = "traefik_service_request_duration_seconds_bucket"
FAILURES = "nv_inference_request_failure"
GONE = ("499", "1")
"""Statuses of requests whose client went away, HTTP's and gRPC's."""
UNSERVED = ("502", "503", "504")
"""Statuses that Traefik gives without a server."""
ANSWERED = {"": ("200",), "-grpc": ("0", "2", "200")}
"""Statuses of answers, by the ending of the service's name. Traefik 3.7 looks for gRPC's status before the
answer, which has it at its end: so answers are 2 (unknown), and failures without an answer have their own."""
COUNTED_TWICE = 2
"""How often tritonserver counts a failed request of an ensemble (24.10 to 26.06)."""
Key = tuple[str, str]
"""Model and metric of a distribution."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Requests that one side answered."""

    requests: int = 0
    failures: int = 0
    unserved: int = 0
    """Failures that Traefik gave without a server."""
    buckets: Mapping[str, float] = field(default_factory=dict)
    """Answered requests by the upper bound of their seconds, cumulative."""

    @property
    def share(self) -> float:
        """Share of failed requests; 0 without requests."""
        return self.failures / self.requests if self.requests else 0.0

    @property
    def p99(self) -> float | None:
        """Seconds; None without answers."""
        return self.quantile(QUANTILE)

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of the answers did not exceed; None without answers."""
        return exposition.quantile(share, self.buckets)

    @property
    def answered(self) -> int:
        """Requests with a time."""
        return round(max(self.buckets.values(), default=0.0))

    def above(self, seconds: float) -> int:
        """Requests that took longer, interpolated within a bucket, rounded down."""
        steps = sorted((float(bound), count) for bound, count in self.buckets.items())
        start = below = 0.0
        for bound, count in steps:
            if bound >= seconds:
                part = (seconds - start) / (bound - start) if math.isfinite(bound) else 1.0
                return math.floor(self.answered - (below + part * (count - below)))
            start, below = bound, count
        return 0

    def plus(self, other: Sample) -> Sample:
        """Both together."""
        keys = {*self.buckets, *other.buckets}
        return Sample(
            requests=self.requests + other.requests,
            failures=self.failures + other.failures,
            unserved=self.unserved + other.unserved,
            buckets={key: self.buckets.get(key, 0.0) + other.buckets.get(key, 0.0) for key in keys},
        )

    def minus(self, before: Sample) -> Sample:
        """The requests since an earlier look."""
        return Sample(
            requests=max(0, self.requests - before.requests),
            failures=max(0, self.failures - before.failures),
            unserved=max(0, self.unserved - before.unserved),
            buckets={
                key: max(0.0, count - before.buckets.get(key, 0.0)) for key, count in self.buckets.items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for the state."""
        return {
            "requests": self.requests,
            "failures": self.failures,
            "unserved": self.unserved,
            "buckets": dict(self.buckets),
        }


def of(seconds: Iterable[float], failures: int) -> Sample:
    """The sample of requests that were timed here."""
    counts = [0] * (len(BUCKETS) + 1)
    for each in seconds:
        counts[bisect.bisect_left(BUCKETS, each)] += 1
    buckets, total = {}, 0
    for bound, count in zip((*BUCKETS, math.inf), counts, strict=True):
        total += count
        buckets[reference.bucket(bound)] = float(total)
    return Sample(requests=total + failures, failures=failures, buckets=buckets)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side's requests, and the distributions of its texts and answers."""

    sample: Sample = field(default_factory=Sample)
    counts: Mapping[Key, Mapping[str, float]] = field(default_factory=dict)
    """Count of each bucket, by model and metric."""
    texts: Mapping[Key, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the state."""
        listed = [
            {"model": model, "metric": metric, "counts": dict(counts), "texts": self.texts[model, metric]}
            for (model, metric), counts in self.counts.items()
        ]
        return {"sample": self.sample.to_json(), "distributions": listed}


def side_of_json(document: Any) -> Side:
    """The side of ``to_json``. Raises one of ``DAMAGED`` for another document."""
    sample = document["sample"]
    listed = {(str(each["model"]), str(each["metric"])): each for each in document["distributions"]}
    return Side(
        sample=Sample(
            requests=int(sample["requests"]),
            failures=int(sample["failures"]),
            unserved=int(sample["unserved"]),
            buckets={str(key): float(value) for key, value in sample["buckets"].items()},
        ),
        counts={
            key: {str(name): float(count) for name, count in each["counts"].items()}
            for key, each in listed.items()
        },
        texts={key: float(each["texts"]) for key, each in listed.items()},
    )


@dataclass(frozen=True, kw_only=True)
class Reading:
    """All metrics pages at one moment."""

    traefik: Page = field(default_factory=Page)
    stable: Page = field(default_factory=Page)
    canary: Page = field(default_factory=Page)
    gateway: Page = field(default_factory=Page)

    def page(self, side: str) -> Page:
        """The page of a side's server."""
        return self.stable if side == STABLE else self.canary


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The traffic of a window, by side, and what the gateway's shadow compared in it."""

    stable: Side
    canary: Side
    shadow: Answers | None = None


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers of both sides to the same requests."""

    compared: int = 0
    different: int = 0
    example: str = ""
    """The first difference, in words."""

    def plus(self, other: Answers) -> Answers:
        """Both together."""
        return Answers(
            compared=self.compared + other.compared,
            different=self.different + other.different,
            example=self.example or other.example,
        )


def between(
    before: Reading,
    after: Reading,
    *,
    endpoints: Mapping[str, bool],
    direct_failures: Mapping[str, int] | None = None,
) -> Traffic:
    """The traffic between two readings.

    ``endpoints``: names, each with whether it is an ensemble. ``direct_failures``: failures of requests that
    were sent to a server without Traefik, by side.
    """
    direct = direct_failures or {}
    sides = {
        side: Side(
            sample=_sample(before, after, side, endpoints, direct.get(side, 0)),
            **_distributions(before.page(side), after.page(side)),
        )
        for side in (STABLE, CANARY)
    }
    return Traffic(stable=sides[STABLE], canary=sides[CANARY], shadow=_shadow(before, after, endpoints))


def _sample(
    before: Reading, after: Reading, side: str, endpoints: Mapping[str, bool], direct_failures: int
) -> Sample:
    requests = refused = unserved = 0.0
    buckets: dict[str, float] = {}
    for kind, answered in ANSWERED.items():
        service = f"{side}{kind}@file"
        for code, count in _grown(before.traefik, after.traefik, "code", REQUESTS, service).items():
            if code in GONE:
                continue
            requests += count
            unserved += count if code in UNSERVED else 0
            refused += count if code not in (*answered, *UNSERVED) else 0
        for code in answered:
            grown = _grown(before.traefik, after.traefik, "le", SECONDS, service, code=code)
            for bound, count in grown.items():
                buckets[bound] = buckets.get(bound, 0.0) + count
    # A failure over gRPC may be counted as unknown, too; the server counts most failures of both protocols.
    counted = max(0.0, _failures(before.page(side), after.page(side), endpoints) - direct_failures)
    failures = min(round(requests), round(max(refused, counted) + unserved))
    return Sample(requests=round(requests), failures=failures, unserved=round(unserved), buckets=buckets)


def _grown(before: Page, after: Page, label: str, name: str, service: str, **labels: str) -> dict[str, float]:
    """Growth of a service's counters of POST requests, by a label. Health checks are GET."""
    old, new = (page.by(label, name, service=service, method="POST", **labels) for page in (before, after))
    return exposition.growth(old, new)


def _failures(before: Page, after: Page, endpoints: Mapping[str, bool]) -> float:
    total = 0.0
    for name, ensemble in endpoints.items():
        old, new = (page.by("reason", FAILURES, model=name) for page in (before, after))
        grown = {
            reason: value for reason, value in exposition.growth(old, new).items() if reason != "CANCELED"
        }
        total += sum(grown.values()) / (COUNTED_TWICE if ensemble else 1)
    return total


def _distributions(before: Page, after: Page) -> dict[str, Any]:
    """Distributions of all models that count, over their versions: a canary's number is another one."""
    counts: dict[Key, Mapping[str, float]] = {}
    texts: dict[Key, float] = {}
    for metric, series in drift.COUNTERS.items():
        for model in sorted({sample.labels.get("model", "") for sample in after.select(series)}):
            key = (model, metric)
            counts[key], texts[key] = drift.counted((after, before), (model, ""), metric)
    return {"counts": counts, "texts": texts}


def _shadow(before: Reading, after: Reading, endpoints: Mapping[str, bool]) -> Answers | None:
    name = "trb_shadow_answers_total"
    if name not in after.gateway:
        return None
    sums: dict[str, float] = {}
    for endpoint in endpoints:
        old, new = (page.by("agreement", name, endpoint=endpoint) for page in (before.gateway, after.gateway))
        for key, value in exposition.growth(old, new).items():
            sums[key] = sums.get(key, 0.0) + value
    return Answers(compared=round(sum(sums.values())), different=round(sums.get("different", 0.0)))
