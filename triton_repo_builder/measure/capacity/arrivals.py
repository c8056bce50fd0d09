"""Load over time, second by second, and how many replicas an autoscaler runs for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
DAY = 86_400
TROUGH = 0.3
"""Load at night as a share of the peak."""
BURST, BURST_SECONDS, BURST_SHARE = 3.0, 5.0, 0.1
"""A burst is three times the usual load, lasts five seconds in the mean, and fills a tenth of the time."""
MEASURED = 30
"""Seconds over which an autoscaler averages the load."""
PATTERNS = ("poisson", "bursty", "daily")


@dataclass(frozen=True, kw_only=True)
class Autoscaling:
    """Replicas follow the load."""

    delay: float
    """Seconds from the decision until a new replica answers; surplus replicas are removed at once."""
    utilization: float = 0.6
    """Share of its capacity that a replica should be used."""
    least: int = 2


def rates(pattern: str, rps: float, seconds: int, seed: int) -> Floats:
    """Requests per second in each second. ``rps`` is the mean, and of ``daily`` the peak."""
    if pattern == "poisson":
        return np.full(seconds, rps)
    if pattern == "daily":
        hours = 2 * math.pi * np.arange(DAY) / DAY
        return np.asarray(rps * (TROUGH + (1 - TROUGH) * (1 - np.cos(hours)) / 2))
    chance = np.random.default_rng(seed)
    usual = rps / (1 - BURST_SHARE + BURST * BURST_SHARE)
    series = np.empty(seconds)
    bursting = False
    for second in range(seconds):
        length = BURST_SECONDS if bursting else BURST_SECONDS * (1 - BURST_SHARE) / BURST_SHARE
        bursting = bursting != (chance.random() < 1 / length)
        series[second] = usual * (BURST if bursting else 1)
    return series


def replicas(load: Floats, per_replica: float, scaling: Autoscaling) -> npt.NDArray[np.int64]:
    """Replicas that answer in each second; assumes that the load before t = 0 equals the load at t = 0."""
    mean = np.convolve(
        np.concatenate([np.full(MEASURED - 1, load[0]), load]), np.full(MEASURED, 1 / MEASURED), "valid"
    )
    needed = np.maximum(scaling.least, np.ceil(mean / (per_replica * scaling.utilization) - 1e-9)).astype(
        np.int64
    )
    delay = round(scaling.delay)
    late = np.concatenate([np.full(delay, needed[0]), needed])[: len(needed)]
    # More only after the delay; fewer as soon as fewer are needed.
    return np.asarray(np.minimum(np.maximum(late, scaling.least), np.maximum(needed, scaling.least)))


def arrivals(per_second: Floats, seed: int) -> Floats:
    """Arrival times of a Poisson stream with these rates, ascending."""
    chance = np.random.default_rng(seed)
    counts = chance.poisson(per_second)
    starts = np.repeat(np.arange(len(per_second), dtype=np.float64), counts)
    return np.sort(starts + chance.random(len(starts)))
