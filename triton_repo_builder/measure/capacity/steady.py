"""A replica at constant loads, from the simulator: latencies, queues and busy cores as a table.

A day of a fleet is a billion requests: too many for the simulator, but a replica's load hardly changes within
seconds, so its steady state at that load tells what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from triton_repo_builder.measure.capacity import arrivals, simulate
from triton_repo_builder.measure.capacity.arrivals import Floats
from triton_repo_builder.measure.capacity.service import Service

SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.94, 0.97)
"""Simulated loads, as shares of the service's limit."""
REQUESTS = 8_000
SECONDS, LONGEST = 40, 600
"""A simulated load takes at least the one and at most the other."""
WARMUP = 0.1
"""Share of a run that does not count."""
QUANTILES = np.linspace(0, 1, 401)
SAMPLES = 400
"""Moments at which the length of a queue is looked at, as a scrape does."""


@dataclass(frozen=True, kw_only=True)
class Steady:
    """Behaviour of a replica by its load, a share of its limit. Axis 0 of all tables: ``SHARES``."""

    service: Service
    latency: Floats
    """Milliseconds, by ``QUANTILES``."""
    waiting: Floats
    """Requests in the queue of each stage (axis 1) at ``SAMPLES`` moments (axis 2)."""
    queue_ms: Floats
    """Mean time in the queue of each stage."""
    busy: Floats
    """Cores that executions and answers keep busy, on average."""
    _late: dict[float, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    def late(self, share: float, limit_ms: float) -> float:
        """Share of requests that take longer than a limit."""
        return float(np.interp(share, SHARES, self._beyond(limit_ms)))

    def _beyond(self, limit_ms: float) -> Floats:
        if limit_ms not in self._late:
            values = [1 - np.interp(limit_ms, row, QUANTILES) for row in self.latency]
            self._late[limit_ms] = np.array(values)
        return self._late[limit_ms]

    def queued_ms(self, share: float) -> Floats:
        """Mean time in the queue of each stage."""
        return np.array([np.interp(share, SHARES, column) for column in self.queue_ms.T])

    def sample(self, share: float, replicas: int, chance: np.random.Generator) -> Floats:
        """Requests in the queues of replicas at one moment: by replica and stage."""
        place = np.interp(share, SHARES, np.arange(len(SHARES)))
        # Between two tables, each replica is in one of them by chance.
        rows = np.floor(place + chance.random(replicas)).astype(np.int64).clip(0, len(SHARES) - 1)
        return np.asarray(self.waiting[rows, :, chance.integers(0, SAMPLES, replicas)])

    def cores(self, share: float) -> float:
        """Busy cores."""
        return float(np.interp(share, SHARES, self.busy))


def measure(service: Service, seed: int) -> Steady:
    """Simulate each load. Takes some seconds."""
    runs = [_at(service, share * service.per_second, seed) for share in SHARES]
    latency, waiting, queue, busy = (np.array(column) for column in zip(*runs, strict=True))
    return Steady(service=service, latency=latency, waiting=waiting, queue_ms=queue, busy=busy)


def _at(service: Service, rate: float, seed: int) -> tuple[Floats, Floats, Floats, float]:
    seconds = round(min(max(REQUESTS / rate, SECONDS), LONGEST))
    due = arrivals.arrivals(np.full(seconds, rate), seed)
    run = simulate.trace(service, due, seed)
    counted = due >= WARMUP * seconds
    moments = np.linspace(WARMUP * seconds, seconds, SAMPLES, endpoint=False) * 1000
    # Entries minus starts until a moment: the length of the queue.
    lengths = [
        np.searchsorted(np.sort(entered), moments, "right") - np.searchsorted(np.sort(left), moments, "right")
        for entered, left in zip(run.queued, run.started, strict=True)
    ]
    queue_ms = (run.started - run.queued)[:, counted].mean(axis=1)
    return (
        np.quantile(run.latency[counted], QUANTILES),
        np.array(lengths, dtype=np.float64),
        queue_ms,
        run.busy_ms / 1000 / seconds,
    )
