"""A latency objective: a percentile and its limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PERCENTILES = ("p50", "p90", "p95", "p99", "max")
"""Percentiles of a level, from the mildest to the hardest."""
LEAST_ANSWERED = 0.95
"""Share of the arrivals that must be answered: a queue that grows meets no objective for long."""


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

    def of(self, latency: object) -> float:
        """The percentile's milliseconds of a ``Latency``, or of an entry of report.json."""
        value = (
            latency[self.percentile] if isinstance(latency, Mapping) else getattr(latency, self.percentile)
        )
        return float(value)
