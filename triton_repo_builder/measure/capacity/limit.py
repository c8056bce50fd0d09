"""The load at which one replica barely keeps an objective, and how much waits in its queues there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from triton_repo_builder.measure.capacity import arrivals, simulate
from triton_repo_builder.measure.capacity.service import Service
from triton_repo_builder.measure.objective import Objective

REQUESTS = 10_000
"""Simulated requests of each tried load; the first tenth does not count."""
STEPS = 7
"""Halvings of the interval: the load is found to 1 % of the service's limit."""
HIGHEST = 0.98
"""Share of the service's limit that is tried at most: beyond it the queue grows without end."""
SEED = 1


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A replica at the highest load that keeps the objective."""

    per_second: float
    """Requests per second that come at random (Poisson)."""
    pending_batches: Mapping[str, float]
    """By model: requests that wait in its queue, on average over time, in batches that fill its instances."""

    @property
    def pending(self) -> float:
        """Waiting batches of the model whose queue is the longest."""
        return max(self.pending_batches.values())


def limit(service: Service, objective: Objective, per_second: float) -> Limit | None:
    """The limit, at most the measured capacity ``per_second``; None if no load keeps the objective.

    Loads are tried in the simulator, since by Little's law (waiting = rate x time in the queue) the queue
    at a load follows from the same run that says whether the objective holds. The measured capacity is the
    upper end: the simulator knows nothing of what else limited the real server.
    """
    low, high = 0.0, min(per_second, HIGHEST * service.per_second)
    best = _at(service, objective, high)
    if best:
        return best
    for _ in range(STEPS):
        middle = (low + high) / 2
        tried = _at(service, objective, middle)
        low, high, best = (middle, high, tried) if tried else (low, middle, best)
    return best


def _at(service: Service, objective: Objective, rate: float) -> Limit | None:
    """The queues at a load, if it keeps the objective."""
    seconds = max(1, round(REQUESTS / rate))
    due = arrivals.arrivals(np.full(seconds, rate), SEED)
    run = simulate.trace(service, due, SEED)
    counted = due >= seconds / 10
    if not counted.any() or np.quantile(run.latency[counted], objective.share) > objective.ms:
        return None
    waited = (run.started - run.queued)[:, counted].sum(axis=1) / 1000 / (0.9 * seconds)
    return Limit(
        per_second=rate,
        pending_batches={
            stage.model: float(waiting / (stage.max_batch * stage.instances))
            for stage, waiting in zip(service.stages, waited, strict=True)
        },
    )
