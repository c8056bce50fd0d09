"""Latency of a fleet by simulation of one replica after the other.

Requests go to the replicas by chance. So each replica gets a Poisson stream of its own, and a few replicas
stand for a million: 10⁶ requests/s cost no more to simulate than 10³. A balancer that knows which replica is
idle does better than this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.capacity import arrivals, simulate
from triton_repo_builder.measure.capacity.arrivals import DAY, Autoscaling, Floats
from triton_repo_builder.measure.capacity.service import Service
from triton_repo_builder.measure.objective import Objective

WARMUP, SECONDS = 5, 120
"""Simulated seconds of each replica, and the seconds at the beginning that do not count."""
REQUESTS = 40_000
"""Approximate number of simulated requests."""
IDLE = 0.005
"""Share of a replica's capacity below which it counts as loaded so: nothing ever waits there."""
HOURS, MOMENT = 24, 10
"""Moments of a day that are simulated, one an hour, and their seconds: its load changes slowly."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A load, and the fleet that answers it."""

    pattern: str
    rps: float
    seed: int = 1
    scaling: Autoscaling | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Latencies of all requests, in milliseconds."""

    replicas: int
    """Largest number of replicas at a time."""
    mean_replicas: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    utilization: float
    """Mean share of the capacity that was used."""
    busiest: float
    """The largest share in any minute; above 1 the queue grows."""
    requests: int
    """Number of simulated requests."""

    def of(self, objective: Objective) -> float:
        """The percentile that the objective is about."""
        return float(getattr(self, objective.percentile))


def predict(service: Service, scenario: Scenario, replicas: int) -> Prediction:
    """Latencies of this many replicas, or of an autoscaler's replicas. Raises ``TrbError`` USAGE."""
    load = arrivals.rates(scenario.pattern, scenario.rps, WARMUP + SECONDS, scenario.seed)
    if scenario.scaling:
        running = arrivals.replicas(load, service.per_second, scenario.scaling)
    else:
        running = np.full(len(load), replicas)
    each = np.maximum(load / running, IDLE * service.per_second)
    pieces = _stretches(scenario.pattern, len(each))
    samples = max(1, round(REQUESTS / max(1.0, sum(float(each[piece].sum()) for piece in pieces))))
    latencies: list[Floats] = []
    weights: list[Floats] = []
    for number in range(samples):
        for position, piece in enumerate(pieces):
            seed = scenario.seed * 1_000_003 + number * len(pieces) + position
            due = arrivals.arrivals(each[piece], seed)
            if not len(due):
                continue
            counted = due >= WARMUP
            latencies.append(simulate.run(service, due, seed)[counted])
            # A replica of many stands for more requests than one of few.
            weights.append(running[piece][due.astype(np.int64)][counted].astype(np.float64))
    if not sum(map(len, latencies)):
        raise TrbError(
            Code.USAGE,
            f"a request takes {1 / service.per_second:,.0f} s: too long for a simulation of {SECONDS} s",
            where="--simulate",
            remedy="plan without it",
        )
    p50, p90, p95, p99, worst = _percentiles(np.concatenate(latencies), np.concatenate(weights))
    used = load / running / service.per_second
    return Prediction(
        replicas=int(running.max()),
        mean_replicas=float(running.mean()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=worst,
        utilization=float(load.sum() / (running * service.per_second).sum()),
        busiest=_busiest(used),
        requests=sum(map(len, latencies)),
    )


def fewest(service: Service, scenario: Scenario, objective: Objective) -> Prediction:
    """The fewest replicas that meet the objective in the simulation, without an autoscaler."""
    low, high = 0, max(1, int(scenario.rps / service.per_second))
    best = predict(service, scenario, high)
    while not _meets(best, objective):
        if high > 64 * (1 + scenario.rps / service.per_second):
            return best  # not even an idle server meets it
        low, high = high, max(high + 1, round(high * 1.25))
        best = predict(service, scenario, high)
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        tried = predict(service, scenario, middle)
        low, high, best = (low, middle, tried) if _meets(tried, objective) else (middle, high, best)
    return best


def _meets(prediction: Prediction, objective: Objective) -> bool:
    return prediction.of(objective) <= objective.ms


def _stretches(pattern: str, seconds: int) -> list[slice]:
    if pattern != "daily":
        return [slice(0, seconds)]
    length = WARMUP + MOMENT
    return [slice(start, start + length) for start in range(0, DAY - length, DAY // HOURS)]


def _percentiles(values: Floats, weights: Floats) -> list[float]:
    order = np.argsort(values)
    position = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(position, [0.5, 0.9, 0.95, 0.99]).clip(0, len(values) - 1)
    return [*(float(values[order][index]) for index in places), float(values.max())]


def _busiest(used: npt.NDArray[np.float64]) -> float:
    minute = min(60, len(used))
    return float(np.convolve(used, np.full(minute, 1 / minute), "valid").max())
