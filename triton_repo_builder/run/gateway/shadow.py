"""Copies of requests for a second server or version, whose answers are compared and never sent.

A copy starts after its request was answered. It waits in a bounded queue: what does not fit is dropped and
counted, so a slow or broken shadow costs clients nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import Counter, Histogram

from triton_repo_builder.run.gateway import agreement
from triton_repo_builder.run.gateway.agreement import Agreement
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.options import ShadowOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.triton import Answer, Columns, Triton

SHARE = 0.05
"""Share of the requests that is copied without ``--share``."""
WAITING = 64
"""Copies that wait."""
WAITING_BYTES = 64 << 20
"""Bytes of requests and answers that wait."""
UNDER_WAY = 4
"""Copies at the shadow at a time."""
RECENT = 1000
"""Copies whose times make the percentiles."""
SAME_STEPS = (
    "the versions of an ensemble share one config.pbtxt, so the same steps: "
    "run the other one as a second server"
)
"""The failure of a copy for a version that would answer as the served one."""

COPIES = Counter(
    "trb_shadow_copies", "Copies of requests: compared, dropped, failed.", ("endpoint", "result")
)
ANSWERS = Counter(
    "trb_shadow_answers", "Compared rows, and compared orders of lists.", ("endpoint", "agreement")
)
COSINES = Histogram(
    "trb_shadow_cosine",
    "Cosine of both vectors.",
    ("endpoint",),
    buckets=(0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.99999, 1.0),
)
SCORES = Histogram(
    "trb_shadow_score_difference",
    "Largest difference of the scores.",
    ("endpoint",),
    buckets=(1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
)
SECONDS = Histogram(
    "trb_shadow_seconds",
    "Time at Triton of requests that were copied, and of their copies.",
    ("endpoint", "side"),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)


@dataclass(slots=True)
class Copy:
    """An answered request; not frozen, since one is made for each request."""

    served: Served
    columns: Columns
    outputs: Sequence[str]
    answers: list[Answer]
    seconds: float
    timeout: float
    size: int
    """Bytes of the request's body."""

    @property
    def bytes(self) -> int:
        """Memory that the copy keeps, about."""
        return self.size + sum(array.nbytes for answer in self.answers for array in answer.values())


@dataclass(slots=True)
class Tally:
    """Counts of one endpoint."""

    endpoint: str
    task: str
    compared: int = 0
    dropped: int = 0
    failed: int = 0
    last_failure: str = ""
    same: int = 0
    different: int = 0
    values: int = 0
    total: float = 0.0
    worst: float | None = None
    primary: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    shadow: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def drop(self) -> None:
        """Count a copy that found no place."""
        self.dropped += 1
        COPIES.labels(self.endpoint, "dropped").inc()

    def fail(self, reason: str) -> None:
        """Count a copy without an answer, or with one that cannot be compared."""
        self.failed += 1
        self.last_failure = reason
        COPIES.labels(self.endpoint, "failed").inc()

    def add(self, copy: Copy, seconds: float, result: Agreement) -> None:
        """Count a comparison."""
        self.compared += 1
        same = sum(result.same)
        self.same += same
        self.different += len(result.same) - same
        self.primary.append(copy.seconds)
        self.shadow.append(seconds)
        worse = min if self.measure == agreement.COSINE else max
        for value in result.values:
            self.worst = value if self.worst is None else worse(self.worst, value)
        self.values += len(result.values)
        self.total += sum(result.values)
        COPIES.labels(self.endpoint, "compared").inc()
        ANSWERS.labels(self.endpoint, "same").inc(same)
        ANSWERS.labels(self.endpoint, "different").inc(len(result.same) - same)
        SECONDS.labels(self.endpoint, "primary").observe(copy.seconds)
        SECONDS.labels(self.endpoint, "shadow").observe(seconds)
        histogram = (COSINES if self.measure == agreement.COSINE else SCORES).labels(self.endpoint)
        for value in result.values:
            histogram.observe(value)

    @property
    def measure(self) -> str:
        """``cosine``, or ``score`` for differences of scores."""
        return agreement.measure(self.task)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``GET /shadow``."""
        answers = self.same + self.different
        return {
            "endpoint": self.endpoint,
            "task": self.task,
            "compared": self.compared,
            "dropped": self.dropped,
            "failed": self.failed,
            "last_failure": self.last_failure or None,
            "answers": answers,
            "same": self.same,
            "agreement": self.same / answers if answers else None,
            "measure": self.measure,
            "mean": self.total / self.values if self.values else None,
            "worst": self.worst,
            "primary_ms": _milliseconds(self.primary),
            "shadow_ms": _milliseconds(self.shadow),
        }


def _milliseconds(seconds: Iterable[float]) -> dict[str, float | None]:
    """Percentiles of the most recent copies."""
    ordered = sorted(seconds)
    return {
        name: round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


class Shadow:
    """The second server or version, and what is known of its answers. Without a target it does nothing."""

    def __init__(self, options: ShadowOptions, triton: Triton) -> None:
        self.target = options.target
        share = SHARE if options.share is None else options.share
        self.share = share if options.target else 0.0
        version = options.target.isdecimal()
        self.version = options.target if version else ""
        self.triton = triton if version or not options.target else Triton(options.target)
        self.tallies: dict[str, Tally] = {}
        self._own = self.triton is not triton
        self._waiting: asyncio.Queue[Copy] = asyncio.Queue(WAITING)
        self._bytes = 0
        self._workers: list[asyncio.Task[None]] = []

    def offer(self, copy: Copy) -> None:
        """Take the copy if it is one of the share and there is room; returns at once."""
        if random.random() >= self.share:
            return
        tally = self._tally(copy.served)
        size = copy.bytes
        if self._waiting.full() or self._bytes + size > WAITING_BYTES:
            tally.drop()
            return
        if not self._workers:
            if self._own:
                self.triton.open()
            self._workers = [asyncio.ensure_future(self._work()) for _ in range(UNDER_WAY)]
        self._bytes += size
        self._waiting.put_nowait(copy)

    async def close(self) -> None:
        """End the copies that wait or are under way."""
        for worker in self._workers:
            worker.cancel()
        if self._own and self._workers:
            await self.triton.close()

    def report(self) -> dict[str, Any]:
        """Plain values for ``GET /shadow``."""
        return {
            "target": self.target or None,
            "share": self.share,
            "waiting": self._waiting.qsize(),
            "endpoints": [tally.to_json() for _, tally in sorted(self.tallies.items())],
        }

    def _tally(self, served: Served) -> Tally:
        tally = self.tallies.get(served.name)
        if tally is None or tally.task != served.task:
            tally = self.tallies[served.name] = Tally(served.name, served.task)
        return tally

    async def _work(self) -> None:
        while True:
            copy = await self._waiting.get()
            try:
                await self._compare(copy, self._tally(copy.served))
            finally:
                self._bytes -= copy.bytes

    async def _compare(self, copy: Copy, tally: Tally) -> None:
        """Ask the shadow and count; whatever goes wrong is a failure of the shadow."""
        if self.version and copy.served.ensemble:
            tally.fail(SAME_STEPS)
            return
        served = replace(copy.served, version=self.version) if self.version else copy.served
        began = time.perf_counter()
        try:
            answers = await self.triton.infer(served, copy.columns, copy.outputs, timeout=copy.timeout)
            seconds = time.perf_counter() - began
            batched = served.endpoint.max_batch_size > 0
            # In a thread: large lists take milliseconds, in which requests go on.
            result = await asyncio.to_thread(agreement.compared, served.task, batched, copy.answers, answers)
        except Refusal as refusal:
            tally.fail(refusal.message)
        except Exception as error:
            tally.fail(f"the answers cannot be compared: {type(error).__name__}: {error}")
        else:
            tally.add(copy, seconds, result)
