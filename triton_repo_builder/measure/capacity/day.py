"""A day of a fleet that an autoscaler follows: late requests and replica hours.

Every ``TICK`` seconds each ready replica gets its part of the load. Below its limit it is in the steady
state of that load (``steady.py``, the simulator of ``trb plan``); beyond it a backlog grows that later
requests wait for. Prometheus scrapes every ``SCRAPE`` seconds; recording rules and the autoscaler follow one
scrape later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from triton_repo_builder.measure.capacity.arrivals import DAY, Floats, rates
from triton_repo_builder.measure.capacity.autoscaler import SCRAPE, Autoscaler, Scrape
from triton_repo_builder.measure.capacity.steady import Steady

TICK = 5
KEPT = 24
"""Scrapes that rules look back on."""
NOISE, NOISE_SECONDS = 0.08, 120
"""Standard deviation of the load around the day's curve, and the seconds over which it changes."""
BURSTS, BURST_SHARE = 8, (0.4, 1.0)
"""Bursts of a day, and how much they add to the load at that time; each comes within a minute."""
RISE, FALL = 60, 900
"""Seconds until a burst is full, and over which it fades (to 1/e)."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Replicas of one service, and what is asked of them."""

    steady: Steady
    objective_ms: float
    start: int
    """Seconds from the decision until a new replica is ready."""
    cpus: float = 1.0
    """Cores that a replica requests."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A day."""

    late: float
    """Share of the requests beyond the objective's limit."""
    late_hours: float
    """Hours in whose minutes more than 1 % was late."""
    replica_hours: float
    most: int
    changes: int
    """Decisions that changed the number of replicas."""
    counts: Floats
    """Ready replicas, by tick."""


def load(peak: float, seed: int) -> Floats:
    """Requests per second in each tick of a day: the curve of ``--simulate daily``, noise and bursts."""
    chance = np.random.default_rng(seed)
    curve = rates("daily", peak, DAY, seed).reshape(-1, TICK).mean(axis=1)
    kept = np.exp(-TICK / NOISE_SECONDS)
    noise = np.empty(len(curve))
    value = 0.0
    for tick, step in enumerate(chance.standard_normal(len(curve))):
        value = kept * value + np.sqrt(1 - kept**2) * step
        noise[tick] = value
    series = curve * np.exp(NOISE * noise - NOISE**2 / 2)
    seconds = np.arange(len(curve)) * TICK
    for begin in np.sort(chance.uniform(0, DAY, BURSTS)):
        since = seconds - begin
        shape = np.clip(since / RISE, 0, 1) * np.exp(-np.maximum(since - RISE, 0) / FALL)
        series += curve * shape * chance.uniform(*BURST_SHARE)
    return np.asarray(series)


def run(fleet: Fleet, requests: Floats, scaler: Autoscaler | int, costs: Floats, seed: int) -> Outcome:
    """The day. ``scaler``: an autoscaler, or a number of replicas that stays.

    ``costs``: time of a request over the measured one, by tick: longer texts, a slower machine.
    """
    return _Day(fleet, scaler, seed).run(requests, costs)


class _Day:
    def __init__(self, fleet: Fleet, scaler: Autoscaler | int, seed: int) -> None:
        self._fleet, self._steady, service = fleet, fleet.steady, fleet.steady.service
        self._scaler = scaler if isinstance(scaler, Autoscaler) else None
        self._chance = np.random.default_rng(seed)
        self._rate = service.per_second
        self._stages = len(service.stages)
        limits = [stage.instances * stage.max_batch / stage.time(stage.max_batch) for stage in service.stages]
        self._slowest = limits.index(min(limits))
        self._through = service.overhead_ms + sum(stage.time(stage.max_batch) for stage in service.stages)
        self._count = scaler.least if isinstance(scaler, Autoscaler) else scaler
        self._ready = list(range(self._count))
        self._born = self._count
        self._starting: deque[tuple[float, int]] = deque()
        self._backlog = np.zeros(self._count)
        self._answered = np.zeros((self._count, self._stages))
        self._queue_us = np.zeros((self._count, self._stages))
        self._scrapes: deque[Scrape] = deque(maxlen=KEPT)

    def run(self, requests: Floats, costs: Floats) -> Outcome:
        late = np.zeros(len(requests))
        counts = np.zeros(len(requests))
        held, changes = 0.0, 0
        for tick, (rate, cost) in enumerate(zip(requests.tolist(), costs.tolist(), strict=True)):
            now = tick * TICK
            self._admit(now)
            if now % SCRAPE == 0:
                changes += self._follow(now)
                self._scrape(rate, cost)
            late[tick] = self._serve(rate / len(self._ready), cost)
            counts[tick] = len(self._ready)
            held += self._count * TICK
        minutes = (late * requests).reshape(-1, 60 // TICK).sum(axis=1)
        minutes /= requests.reshape(-1, 60 // TICK).sum(axis=1)
        return Outcome(
            late=float((late * requests).sum() / requests.sum()),
            late_hours=float((minutes > 0.01).sum() / 60),
            replica_hours=held / 3600,
            most=int(counts.max()),
            changes=changes,
            counts=counts,
        )

    def _admit(self, now: float) -> None:
        """Starting replicas that are ready by now."""
        while self._starting and self._starting[0][0] <= now:
            self._ready.append(self._starting.popleft()[1])
            self._backlog = np.append(self._backlog, 0.0)
            self._answered = np.vstack([self._answered, np.zeros(self._stages)])
            self._queue_us = np.vstack([self._queue_us, np.zeros(self._stages)])

    def _follow(self, now: float) -> bool:
        """The autoscaler's decision by the last scrape; whether it changed anything."""
        if self._scaler is None or not self._scrapes:
            return False
        wished = self._scaler.replicas(now, self._count, tuple(self._scrapes))
        for _ in range(wished - self._count):
            self._starting.append((now + self._fleet.start, self._born))
            self._born += 1
        for _ in range(self._count - wished):
            if self._starting:
                self._starting.pop()
            else:
                # The requests of a removed replica are answered first: its backlog goes with it.
                self._ready.pop()
        kept = len(self._ready)
        self._backlog, self._answered = self._backlog[:kept], self._answered[:kept]
        self._queue_us = self._queue_us[:kept]
        changed, self._count = wished != self._count, wished
        return changed

    def _share(self, rate: float, cost: float) -> float:
        """Load of a replica as a share of its limit."""
        return rate * cost / self._rate

    def _serve(self, rate: float, cost: float) -> float:
        """One tick of all replicas with this rate each; the share of requests that are late."""
        share, able = self._share(rate, cost), self._rate / cost
        before = self._backlog
        # Within a tick a backlog changes evenly, until it is gone.
        after = np.maximum(before + (rate - able) * TICK, 0.0)
        self._backlog = after
        limit = self._fleet.objective_ms
        steady = self._steady.late(share, limit / cost)
        spare = limit - self._through * cost
        allowed = max(spare, 0.0) / 1000 * able
        low, high = np.minimum(before, after), np.maximum(before, after)
        beyond = np.where(
            high > low, (high - np.maximum(allowed, low)) / np.maximum(high - low, 1e-9), high > allowed
        ).clip(0, 1)
        answered = np.maximum(before + rate * TICK - after, 0.0)
        queued = self._steady.queued_ms(share) * cost * 1000
        self._answered += answered[:, None]
        self._queue_us += answered[:, None] * queued
        self._queue_us[:, self._slowest] += answered * (before + after) / 2 / able * 1e6
        return float(np.where(high > 0, np.maximum(steady, beyond), steady).mean())

    def _scrape(self, rate: float, cost: float) -> None:
        share = self._share(rate / len(self._ready), cost)
        pending = self._steady.sample(share, len(self._ready), self._chance)
        pending[:, self._slowest] += self._backlog
        cores = self._steady.cores(min(share, 1.0)) / self._fleet.cpus
        self._scrapes.append(
            Scrape(
                numbers=tuple(self._ready),
                pending=pending,
                answered=self._answered.copy(),
                queue_us=self._queue_us.copy(),
                cpu=np.full(len(self._ready), cores),
            )
        )
