"""Kubernetes' HorizontalPodAutoscaler, and rules for it: what they read of Prometheus and what they aim at.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/podautoscaler/horizontal.go
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from triton_repo_builder.measure.capacity.arrivals import Floats

SCRAPE = 15
"""Seconds between two scrapes, two evaluations of rules, and two decisions of the autoscaler."""
TOLERANCE = 0.1
"""Deviation of a metric from its target that changes nothing: the default of kube-controller-manager."""


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """Metrics of the ready replicas at one moment. Axis 0: replica, axis 1: stage of the endpoint."""

    numbers: Sequence[int]
    """The replicas, by a number that none has again."""
    pending: Floats
    """``nv_inference_pending_request_count``."""
    answered: Floats
    """``nv_inference_request_success``."""
    queue_us: Floats
    """``nv_inference_queue_duration_us``."""
    cpu: Floats
    """Busy cores since the last scrape, over the cores that a replica requests. Axis 0 alone."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A metric with an average value."""

    total: Callable[[Sequence[Scrape]], float]
    """Sum over the replicas, of the scrapes until now; the last one is the newest."""
    value: float
    """Value of one replica."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An autoscaler's metrics and its pace. The defaults are Kubernetes'."""

    name: str
    targets: tuple[Target, ...]
    window: int = 300
    """Seconds: ``scaleDown.stabilizationWindowSeconds``."""
    up_percent: int = 100
    up_pods: int = 4
    up_seconds: int = 15
    down_percent: int = 100
    down_seconds: int = 15


def shared(earlier: Scrape, later: Scrape) -> int:
    """Number of replicas, from the first on, that both scrapes have: new ones come last, and go first."""
    return sum(a == b for a, b in zip(earlier.numbers, later.numbers, strict=False))


def increase(scrapes: Sequence[Scrape], name: str, window: int) -> Floats:
    """Increase of a counter over the last scrapes, of the replicas that have at least two of them."""
    last, result = scrapes[-1], np.zeros((0, scrapes[-1].answered.shape[1]))
    for first in reversed(scrapes[-1 - window : -1]):
        common = shared(first, last)
        grown = getattr(last, name)[:common] - getattr(first, name)[:common]
        # Replicas that this scrape does not have yet keep the increase since a later one.
        result = np.vstack([grown, result[common:]])
    return result


@dataclass(kw_only=True)
class Autoscaler:
    """The controller; not frozen: it remembers what it recommended."""

    rule: Rule
    least: int
    most: int
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _counts: list[tuple[float, int]] = field(default_factory=list)

    def replicas(self, now: float, count: int, scrapes: Sequence[Scrape]) -> int:
        """Replicas from now on. ``count``: those that it asked for last, ready or not."""
        rule = self.rule
        oldest = now - max(rule.up_seconds, rule.down_seconds)
        self._counts = [*(each for each in self._counts if each[0] >= oldest), (now, count)]
        wished = max(self._wished(target, count, scrapes) for target in rule.targets)
        self._recommended = [each for each in self._recommended if each[0] > now - rule.window]
        self._recommended.append((now, wished))
        if wished < count:
            # Only what none of the recommendations within the window needed is removed.
            wished = min(count, max(number for _, number in self._recommended))
        wished = min(max(wished, self.least), self.most)
        if wished > count:
            before = min(self._since(now - rule.up_seconds), count)
            highest = max(math.ceil(before * (1 + rule.up_percent / 100)), before + rule.up_pods)
            return min(wished, max(highest, count))
        before = max(self._since(now - rule.down_seconds), count)
        return max(wished, min(math.floor(before * (1 - rule.down_percent / 100)), count))

    def _since(self, moment: float) -> int:
        """Replicas when a period began."""
        return next(number for at, number in self._counts if at >= moment)

    def _wished(self, target: Target, count: int, scrapes: Sequence[Scrape]) -> int:
        total = target.total(scrapes)
        if abs(total / (target.value * count) - 1) <= TOLERANCE:
            return count
        return math.ceil(total / target.value - 1e-9)
