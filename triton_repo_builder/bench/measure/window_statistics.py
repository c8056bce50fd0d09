"""Percentiles, windows and the rule of stability: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from triton_repo_builder.bench.load.messages import OK
from triton_repo_builder.bench.options import OPEN, SETTLED
from triton_repo_builder.bench.report.report import Latency, Window

Floats = npt.NDArray[np.float64]
Kinds = npt.NDArray[np.int64]
TOLERANCE = 0.10
"""Windows agree when throughput and p95 stay this close to their mean."""


def latency(milliseconds: Floats) -> Latency | None:
    """Summary of exact latencies; linear interpolation between neighbours, as numpy does it."""
    if not milliseconds.size:
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(milliseconds, [50, 90, 95, 99]))
    return Latency(
        mean=float(milliseconds.mean()),
        std=float(milliseconds.std()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(milliseconds.max()),
    )


def window(due: Floats, ended: Floats, kinds: Kinds, begin: float, end: float) -> Window:
    """What ended in [begin, end). Latency counts from when a request was due, not from when it left."""
    inside = (ended >= begin) & (ended < end)
    good = inside & (kinds == OK)
    return Window(
        seconds=end - begin,
        answered=int(good.sum()),
        arrived=int(((due >= begin) & (due < end)).sum()),
        failed=int(inside.sum() - good.sum()),
        latency=latency((ended[good] - due[good]) * 1000),
    )


def spread(windows: Sequence[Window], mode: str) -> dict[str, float | None]:
    """Largest distance from the mean over the last windows: of throughput, and of p95.

    An open loop's throughput is that of chance arrivals, so there it is the share of arrivals answered.
    """
    last = windows[-SETTLED:]
    if mode == OPEN:
        rates = [one.answered / one.arrived if one.arrived else None for one in last]
    else:
        rates = [one.throughput for one in last]
    tails = [one.latency.p95 if one.latency else None for one in last]
    return {"throughput": _distance(rates), "p95": _distance(tails)}


def _distance(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < max(2, len(values)) or not sum(known):  # one value does not differ from itself
        return None
    mean = sum(known) / len(known)
    return max(abs(value - mean) for value in known) / mean


def stable(windows: Sequence[Window], mode: str) -> bool:
    """Whether the last three windows agree."""
    if len(windows) < SETTLED:
        return False
    return all(value is not None and value <= TOLERANCE for value in spread(windows, mode).values())


def hopeless(windows: Sequence[Window]) -> bool:
    """Whether nothing was answered in three windows, so that waiting longer shows nothing."""
    return len(windows) >= SETTLED and not any(one.answered for one in windows[-SETTLED:])
