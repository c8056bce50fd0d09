"""Rules for autoscalers of Triton servers, as their PromQL computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from triton_repo_builder.measure.capacity.arrivals import Autoscaling
from triton_repo_builder.measure.capacity.autoscaler import SCRAPE, Rule, Scrape, Target, increase, shared
from triton_repo_builder.measure.capacity.limit import Limit
from triton_repo_builder.measure.capacity.service import Service

MINUTE, HALF = 4, 2
"""Scrapes of a minute and of half a minute."""
SHARE = Autoscaling.utilization
"""Share of its limit that a replica should be loaded: the rest is for growth while another one starts."""
MOST_PENDING = 2
"""Multiple of the target that a replica counts at most: one decision at most doubles the ready replicas."""
LEAST_PENDING = 0.05
"""Smallest target: the gauge counts whole requests, so that smaller averages are mostly chance."""
UP_PERCENT, UP_SECONDS = 100, 60
DOWN_PERCENT, DOWN_SECONDS = 10, 60


def pending(service: Service, target: float) -> Target:
    """Batches that wait in the longest queue of a replica, less what the batcher's delay keeps waiting."""
    full = np.array([stage.max_batch * stage.instances for stage in service.stages])
    delay = np.array([stage.delay_ms / 1000 for stage in service.stages])

    def total(scrapes: Sequence[Scrape]) -> float:
        last, recent = scrapes[-1], scrapes[-MINUTE:]
        sums, counts = np.zeros_like(last.pending), np.zeros((len(last.numbers), 1))
        for each in recent:
            common = shared(each, last)
            sums[:common] += each.pending[:common]
            counts[:common] += 1
        waiting = sums / counts
        if delay.any():
            answered = increase(scrapes, "answered", MINUTE)
            seconds = SCRAPE * np.maximum(counts[: len(answered)] - 1, 1)
            waiting[: len(answered)] -= delay * answered / seconds
        batches = (waiting / full).max(axis=1)
        return float(batches.clip(0, MOST_PENDING * target).sum())

    return Target(total=total, value=target)


def load(limit: Limit) -> Target:
    """Requests per second of a replica, against its limit."""

    def total(scrapes: Sequence[Scrape]) -> float:
        steps = min(MINUTE, len(scrapes) - 1)
        return float(increase(scrapes, "answered", MINUTE)[:, -1].sum() / (SCRAPE * steps)) if steps else 0.0

    return Target(total=total, value=limit.per_second * SHARE)


def queue_time(target_us: float, ensemble: bool) -> Target:
    """NVIDIA's chart: ``avg(delta(queue_us[30s]) / (1 + delta(success[30s])))`` over the models of a pod.

    ``deploy/k8s-onprem/values.yaml`` of triton-inference-server/server, target 50 us. ``ensemble``: its own
    series, of no queue, counts as one more model.
    """

    def total(scrapes: Sequence[Scrape]) -> float:
        queue, answered = (increase(scrapes, name, HALF) for name in ("queue_us", "answered"))
        models = queue.shape[1] + ensemble
        return float((queue / (1 + answered)).sum() / models)

    return Target(total=total, value=target_us)


def cpu(share: float) -> Target:
    """Busy cores over requested ones, of metrics-server."""
    return Target(total=lambda scrapes: float(scrapes[-1].cpu.sum()), value=share)


def waiting_batches(limit: Limit) -> float:
    """The target of ``pending``: what waits at the highest load that keeps the objective."""
    return max(LEAST_PENDING, limit.pending)


def ours(service: Service, limit: Limit) -> Rule:
    """The rule that ``trb export`` writes for a report of ``trb tune``."""
    return _paced("trb export", pending(service, waiting_batches(limit)), load(limit))


def pending_alone(service: Service, limit: Limit, window: int) -> Rule:
    """The rule that ``trb export`` writes for ``autoscaling.pending_batches`` without a report.

    A short queue does not say how many replicas may go, so they go one after the other, a window apart.
    """
    rule = _paced("trb export, no report", pending(service, waiting_batches(limit)))
    return replace(rule, down_seconds=window)


def _paced(name: str, *targets: Target) -> Rule:
    return Rule(
        name=name,
        targets=targets,
        up_percent=UP_PERCENT,
        up_pods=0,
        up_seconds=UP_SECONDS,
        down_percent=DOWN_PERCENT,
        down_seconds=DOWN_SECONDS,
    )
