"""Outcomes of requests, and the windows, percentiles and rule of stability computed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from triton_repo_builder.measure.bench.load.messages import OK, Chunk
from triton_repo_builder.measure.bench.options import OPEN
from triton_repo_builder.measure.bench.report.report import Latency, Window
from triton_repo_builder.measure.options import SETTLED

Floats = npt.NDArray[np.float64]
Kinds = npt.NDArray[np.int64]
TOLERANCE = 0.10
"""Windows agree when throughput and p95 stay this close to their mean."""


class Outcomes:
    """Requests that ended so far, from all client processes."""

    def __init__(self) -> None:
        self._due: list[Floats] = []
        self._ended: list[Floats] = []
        self._kind: list[Kinds] = []
        self._numbers: dict[str, int] = {"": OK}
        self.examples: dict[str, str] = {}
        self.lag: list[tuple[float, float]] = []

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Take over what the processes recorded; each numbers its kinds of failure itself."""
        for chunk in chunks:
            numbers = np.array([self._numbers.setdefault(k, len(self._numbers)) for k in chunk.kinds])
            self._due.append(np.array(chunk.due))
            self._ended.append(np.array(chunk.ended))
            self._kind.append(numbers[np.array(chunk.kind, dtype=np.int64)])
            for kind, text in chunk.examples.items():
                self.examples.setdefault(kind, text)

    def arrays(self) -> tuple[Floats, Floats, Kinds]:
        """Arrays of due time, end time and kind."""
        return np.concatenate(self._due), np.concatenate(self._ended), np.concatenate(self._kind)

    def failures(self, kinds: Kinds) -> dict[str, int]:
        """Counts by name."""
        names = {number: name for name, number in self._numbers.items()}
        counts = Counter(int(kind) for kind in kinds if kind != OK)
        return {names[number]: count for number, count in counts.most_common()}


def latency(milliseconds: Floats) -> Latency | None:
    """Summarise exact latencies; percentiles interpolate linearly, as numpy does."""
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
    """Requests that ended in [begin, end). Latency counts from when a request was due, not sent."""
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
        rates = [window.answered / window.arrived if window.arrived else None for window in last]
    else:
        rates = [window.throughput for window in last]
    tails = [window.latency.p95 if window.latency else None for window in last]
    return {"throughput": _distance(rates), "p95": _distance(tails)}


def _distance(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if len(numbers) < max(2, len(values)) or not sum(numbers):  # one value does not differ from itself
        return None
    mean = sum(numbers) / len(numbers)
    return max(abs(value - mean) for value in numbers) / mean


def stable(windows: Sequence[Window], mode: str) -> bool:
    """Whether the last three windows agree."""
    if len(windows) < SETTLED:
        return False
    return all(value is not None and value <= TOLERANCE for value in spread(windows, mode).values())


def silent(windows: Sequence[Window]) -> bool:
    """Whether nothing was answered in three windows, so that further waiting is useless."""
    return len(windows) >= SETTLED and not any(window.answered for window in windows[-SETTLED:])
