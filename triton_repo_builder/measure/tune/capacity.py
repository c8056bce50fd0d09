"""Capacity at an objective: the highest open-loop rate at which it holds, by stepping and bisection."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from triton_repo_builder.measure.bench import level as levels
from triton_repo_builder.measure.bench.judge import missed
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.bench.options import CLOSED, OPEN, Shape, Variant
from triton_repo_builder.measure.bench.prepare import Prepared, prepare
from triton_repo_builder.measure.bench.report.report import Level
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.options import BenchOptions

FEW = 4
"""Number of clients for a second try, if larger batches gave no answer within a window."""
ANSWERS = 150
"""Answers that a percentile should rest on."""
LONGEST = 2.0
"""Windows are at most this many times longer for it."""
FIRST = 0.8
"""First rate to try, as a share of what is answered at all."""
FINE = 0.05
"""Search precision: relative distance of the highest rate that holds and the lowest that does not."""
FINER = 0.025
"""Search precision if settings are compared with each other."""
STEPS = 5
FINER_STEPS = 7
IDLE = 0.02
"""Share of the throughput at which a server counts as idle."""
LESS = (1, 0.95, 0.9, 0.8, 0.6, 0.4)
"""Shares of a rate that is to be confirmed."""
PATIENCE = 1.5
"""A window is at least so many times as long as the objective allows an answer to take."""
STEADY = 10
"""Factor for windows that confirm a rate: at a tenth too much, the queue is too long by then."""
Ceiling = Callable[[float], str]
"""Called with the upper bound of the capacity; returns the reason to give up, or an empty text."""


@dataclass(frozen=True, kw_only=True)
class SettingCapacity:
    """Capacity of one setting."""

    rate: float
    """0 if the objective holds at no rate."""
    level: Level | None
    """The level at that rate, or at the lowest that was tried."""
    saturation: float
    """Requests per second that are answered at all."""
    reason: str
    """Why it was pruned, or does not meet the objective; empty if neither."""
    pruned: bool = False
    reachable: float = 0.0
    """Upper bound of the capacity, of a pruned trial."""
    steps: tuple[tuple[float, str], ...] = ()
    """Rates that were tried, each with why it failed, empty if it held."""

    def latency(self, objective: Objective) -> float:
        """The percentile in milliseconds; infinite if nothing was answered."""
        return objective.of(self.level.latency) if self.level and self.level.latency else math.inf


@dataclass
class Meter:
    """Sends load, with client processes that are kept for the whole run. Not frozen: it keeps them."""

    pool: WorkerPool
    options: BenchOptions
    objective: Objective
    prepared: dict[tuple[str, str], Prepared] = field(default_factory=dict)
    seconds: float = 0.0
    """Seconds spent on load, its warm-up and its last answers."""

    def closed(self, variant: Variant, clients: int, rows: int = 1, *, seconds: float = 0.0) -> Level:
        """Clients that wait for their answers, for a window, or for ``seconds`` if that is more."""
        window = max(self._window(), seconds)
        return self._run(variant, replace(self.options, rows=rows), clients=clients, window=window)

    def open(self, variant: Variant, rate: float, *, long: bool = False) -> Level:
        """Arrivals by chance; the window is long enough for the percentile, or for a queue to show."""
        window = self._window()
        longer = min(max(ANSWERS / rate, window), LONGEST * window)
        if long:
            longer = max(2 * longer, STEADY * self.objective.ms / 1000)
        # More would only wait for one another after the objective is missed already.
        waiting = 16 + math.ceil(2 * rate * self.objective.ms / 1000)
        return self._run(variant, replace(self.options, in_flight=waiting), rate=rate, window=longer)

    def inputs(self, variant: Variant) -> int:
        """Number of different inputs that were sent to a measured endpoint: texts of a corpus."""
        return max(map(len, self.prepared[_key(variant, 1)].inputs.values()))

    def _window(self) -> float:
        return max(self.options.window, PATIENCE * self.objective.ms / 1000)

    def _run(
        self,
        variant: Variant,
        options: BenchOptions,
        *,
        window: float,
        clients: int | None = None,
        rate: float | None = None,
    ) -> Level:
        mode = OPEN if rate else CLOSED
        shape = Shape(protocol=options.protocols[0], mode=mode, concurrency=clients, rate=rate)
        options = replace(options, window=window, min_windows=1, max_windows=1)
        key = _key(variant, options.rows)
        if key not in self.prepared:
            self.prepared[key] = prepare(variant, options)
        prepared = self.prepared[key]
        payload, begun = prepared.requests(shape, options), time.monotonic()
        level = levels.run(self.pool, prepared.target, shape, payload, options, lambda stage: None)
        self.seconds += time.monotonic() - begun
        return level


def _key(variant: Variant, rows: int) -> tuple[str, str]:
    return variant.urls.http, f"{variant.endpoint} {rows}"


def finer_seconds(options: BenchOptions, objective: Objective) -> float:
    """Approximate seconds of a search to ``FINER``."""
    window = max(2 * max(options.window, PATIENCE * objective.ms / 1000), STEADY * objective.ms / 1000)
    return (FINER_STEPS - 2) * (options.warmup + window) + options.warmup + window / 2


def shortest(options: BenchOptions, objective: Objective) -> float:
    """Seconds that a setting takes at least: clients that wait, and one rate."""
    return 2 * (options.warmup + max(options.window, PATIENCE * objective.ms / 1000))


def find(
    meter: Meter,
    variant: Variant,
    ceiling: Ceiling = lambda most: "",
    *,
    clients: int,
    guess: float | None = None,
    finer: bool = False,
) -> SettingCapacity:
    """Search the rate; ``ceiling`` may end it early. With a ``guess`` from before, near that first.

    ``clients``: their number in the closed loop that measures the saturation rate. ``finer``: to
    ``FINER``, each rate held as long as one that is confirmed.
    """
    fine = FINER if finer else FINE
    closed = meter.closed(variant, clients)
    if not closed.answered and clients > FEW:
        closed = meter.closed(variant, FEW)
    most = closed.throughput
    if not closed.answered:
        return SettingCapacity(rate=0, level=closed, saturation=0, reason=missed(closed, meter.objective))
    if reason := ceiling(most):
        return SettingCapacity(
            rate=0, level=None, saturation=most, reason=reason, pruned=True, reachable=most
        )
    low, high = 0.0, most * (1 + FINE)
    best: Level | None = None
    failed: Level | None = None
    steps: list[tuple[float, str]] = []
    rate = min(guess, high) if guess else FIRST * most
    while len(steps) < (FINER_STEPS if finer else STEPS):
        tried = meter.open(variant, rate, long=finer)
        why = missed(tried, meter.objective)
        steps.append((rate, why))
        if why:
            high, failed = rate, tried
        else:
            low, best = rate, tried
            # Clients that wait for each other's batches may show less than arrivals by chance.
            high = max(high, rate * (1 + 2 * FINE)) if rate >= (1 - FINE) * most else high
        if reason := ceiling(high) if why else "":
            return SettingCapacity(
                rate=0,
                level=tried,
                saturation=most,
                reason=reason,
                pruned=True,
                reachable=high,
                steps=tuple(steps),
            )
        if high - low <= fine * high:
            break
        rate = _next(low, high, guess)
        if high < IDLE * most:
            break
    reason = "" if best else f"at {steps[-1][0]:.1f}/s {steps[-1][1]}"
    return SettingCapacity(rate=low, level=best or failed, saturation=most, reason=reason, steps=tuple(steps))


def _next(low: float, high: float, guess: float | None) -> float:
    """Halfway; while nothing has held yet, a good step down; near a guess, a small step from it."""
    if guess and low and guess <= low:
        return min((low + high) / 2, low * (1 + 2 * FINE))
    if guess and not low:
        return high * (1 - 2 * FINE)
    return (low + high) / 2 if low else high * 0.6


def confirm(meter: Meter, variant: Variant, capacity: SettingCapacity) -> SettingCapacity:
    """Hold the rate for longer; if it does not hold, try lower rates in growing steps."""
    rate = capacity.rate
    for share in LESS:
        level = meter.open(variant, rate * share, long=True)
        why = missed(level, meter.objective)
        capacity = replace(
            capacity, rate=rate * share, level=level, steps=(*capacity.steps, (rate * share, why))
        )
        if not why:
            return capacity
    return replace(capacity, rate=0, reason=f"at {capacity.rate:.1f}/s {why}")
