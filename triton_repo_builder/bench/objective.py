"""A latency objective: which percentile may be how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triton_repo_builder.bench.report.report import Latency, Level

PERCENTILES = ("p50", "p90", "p95", "p99", "max")
"""Those that a level has, from the mildest to the hardest."""
LEAST_ANSWERED = 0.95
"""Share of the arrivals that must be answered in a window: a queue that grows meets no objective for long."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """For instance: 99 % of all answers within 50 ms."""

    percentile: str
    ms: float

    def __str__(self) -> str:
        return f"{self.percentile} within {self.ms:g} ms"

    @property
    def share(self) -> float:
        """Share of the answers that must be in time."""
        return 1.0 if self.percentile == "max" else int(self.percentile[1:]) / 100

    def of(self, latency: Latency | Mapping[str, float]) -> float:
        """The percentile's milliseconds of a level, or of an entry of report.json."""
        if isinstance(latency, Latency):
            return float(getattr(latency, self.percentile))
        return float(latency[self.percentile])

    def holds(self, level: Level) -> bool:
        """Whether a level meets it: nothing failed, it kept up, and the percentile is short enough."""
        return not self.missed(level)

    def missed(self, level: Level) -> str:
        """Why a level does not meet it; empty if it does."""
        if level.ended:
            return level.ended
        if level.latency is None:
            return "nothing was answered"
        if level.failed:
            kinds = ", ".join(f"{count} {kind}" for kind, count in level.failures.items())
            return f"requests failed: {kinds}"
        value = self.of(level.latency)
        if value > self.ms:
            return f"{self.percentile} is {value:.1f} ms"
        arrived = sum(window.arrived for window in level.windows)
        answered = sum(window.answered for window in level.windows)
        if arrived and answered < LEAST_ANSWERED * arrived - 3 * arrived**0.5:
            return f"the queue grows: {answered} of {arrived} requests were answered"
        return ""
