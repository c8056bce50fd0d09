"""One machine, event by event: queues, dynamic batches, instances, and cores that executions share.

Not simpy: its resources know neither batches that form while all are busy nor executions that slow each
other down, so that both would be written around it. This is a loop over the next arrival, end and timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triton_repo_builder.measure.capacity.service import Service, Stage

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
NEVER = float("inf")


@dataclass
class _Execution:
    """Requests that a stage computes together; not frozen: ``left`` is the remaining work."""

    left: float
    replica: int
    stage: int
    requests: list[int]
    threads: int


@dataclass(frozen=True, kw_only=True)
class Trace:
    """When each request of a run entered the queue of each stage and left it, in milliseconds."""

    latency: Floats
    """Latency of each request."""
    queued: Floats
    """By stage and request: entry of the queue, since t = 0."""
    started: Floats
    """By stage and request: beginning of the execution, since t = 0."""
    busy_ms: float
    """Time of all cores that executions and answers kept busy."""


def run(service: Service, arrivals: Floats, seed: int, servers: Integers | None = None) -> Floats:
    """Latency in milliseconds of each arrival (seconds, ascending).

    ``servers``: which server each arrival goes to, from 0 on, where several share the cores of
    the machine.
    """
    return trace(service, arrivals, seed, servers).latency


def trace(service: Service, arrivals: Floats, seed: int, servers: Integers | None = None) -> Trace:
    """``run`` with the times of the queues."""
    chance = np.random.default_rng(seed)
    shares, factors = zip(*service.spread, strict=True)
    weights = np.interp(chance.random(len(arrivals)), shares, factors)
    where = np.zeros(len(arrivals), dtype=np.int64) if servers is None else servers
    return _Machine(service, arrivals * 1000, weights, where).run()


class _Machine:
    def __init__(self, service: Service, due: Floats, weights: Floats, where: Integers) -> None:
        replicas = int(where.max(initial=0)) + 1
        self._service, self._stages = service, service.stages
        self._due, self._weights, self._where = due, weights.tolist(), where.tolist()
        self._queues: list[list[deque[int]]] = [[deque() for _ in self._stages] for _ in range(replicas)]
        self._queued: list[list[float]] = [[0.0] * len(due) for _ in self._stages]
        self._started: list[list[float]] = [[0.0] * len(due) for _ in self._stages]
        self._free = [[stage.instances for stage in self._stages] for _ in range(replicas)]
        self._running: list[_Execution] = []
        self._outside: deque[int] = deque()
        """Requests that the models are done with and no thread has taken yet."""
        self._threads = _answering(service, replicas) or len(due)
        self._times: list[list[float]] = [
            [0.0, *(stage.time(rows) for rows in range(1, stage.max_batch + 1))] for stage in self._stages
        ]
        self._main = max(range(len(self._stages)), key=lambda number: self._stages[number].time(1))
        self._now = 0.0
        self._timers: dict[tuple[int, int], float] = {}

    def run(self) -> Trace:
        due = self._due.tolist()
        ended = np.zeros(len(due))
        following, count, busy = 0, len(due), 0.0
        while following < count or self._running or self._timers:
            speed = self._speed()
            first = min(self._running, key=_remaining, default=None)
            end = self._now + first.left / speed if first else NEVER
            arrival = due[following] if following < count else NEVER
            timer = min(self._timers.values(), default=NEVER)
            moment = min(end, arrival, timer)
            passed = (moment - self._now) * speed
            threads = sum(execution.threads for execution in self._running)
            busy += min(threads, self._service.cores or threads) * (moment - self._now)
            for execution in self._running:
                execution.left -= passed
            self._now = moment
            if moment == end and first is not None:
                self._running.remove(first)
                self._finish(first, ended)
            elif moment == arrival:
                self._join(self._where[following], 0, [following])
                following += 1
            else:
                for key in [key for key, at in self._timers.items() if at <= moment]:
                    del self._timers[key]
                    self._start(*key, late=True)
        return Trace(
            latency=ended - self._due,
            queued=np.array(self._queued),
            started=np.array(self._started),
            busy_ms=busy,
        )

    def _speed(self) -> float:
        """Speed of executions: below 1 if they need more cores than there are, or contend for memory."""
        cores = self._service.cores
        if not cores:
            return 1.0
        threads = sum(execution.threads for execution in self._running)
        share = min(1.0, cores / threads if threads else 1.0)
        computing = sum(execution.threads for execution in self._running if execution.stage == self._main)
        # Threads of the slowest model that have a core now: the others wait, and slow nobody down.
        others = min(1.0, max(0.0, computing * share - 1) / (cores - 1)) if cores > 1 else 0.0
        return share / (1 + (self._service.contention - 1) * others)

    def _finish(self, execution: _Execution, ended: Floats) -> None:
        if execution.stage == len(self._stages):
            ended[execution.requests] = self._now
            self._threads += 1
            self._answer()
            return
        self._free[execution.replica][execution.stage] += 1
        self._start(execution.replica, execution.stage)
        self._join(execution.replica, execution.stage + 1, execution.requests)

    def _join(self, replica: int, stage: int, requests: Sequence[int]) -> None:
        if stage == len(self._stages):
            self._outside.extend(requests)
            self._answer()
            return
        for request in requests:
            self._queued[stage][request] = self._now
        self._queues[replica][stage].extend(requests)
        self._start(replica, stage)

    def _answer(self) -> None:
        """Start work outside the models on the cores that the models leave free, at least one.

        All answers of a batch at once would leave hardly anything to the next batch.
        """
        while self._outside and self._threads:
            self._threads -= 1
            batch, after = [self._outside.popleft()], len(self._stages)
            overhead = self._service.overhead_ms
            self._running.append(_Execution(left=overhead, replica=0, stage=after, requests=batch, threads=1))

    def _start(self, replica: int, number: int, *, late: bool = False) -> None:
        """Triton's dynamic batcher: a free instance takes the waiting requests, or waits for more."""
        stage, queue = self._stages[number], self._queues[replica][number]
        while queue and self._free[replica][number]:
            if len(queue) < stage.max_batch and stage.delay_ms and stage.max_batch > 1:
                until = self._queued[number][queue[0]] + stage.delay_ms
                if until > self._now and not late:
                    self._timers[replica, number] = until
                    return
            self._timers.pop((replica, number), None)
            batch = [queue.popleft() for _ in range(min(stage.max_batch, len(queue)))]
            self._execute(stage, replica, number, batch)

    def _execute(self, stage: Stage, replica: int, number: int, batch: list[int]) -> None:
        weights, started = self._weights, self._started[number]
        for request in batch:
            started[request] = self._now
        weight = sum(weights[request] for request in batch) / len(batch)
        self._free[replica][number] -= 1
        self._running.append(
            _Execution(
                left=self._times[number][len(batch)] * weight,
                replica=replica,
                stage=number,
                requests=batch,
                threads=stage.threads,
            )
        )


def _answering(service: Service, servers: int) -> int:
    """Number of answers that are handled at once; 0 if cores do not limit it."""
    used = servers * max((stage.instances * stage.threads for stage in service.stages), default=0)
    return max(1, service.cores - used) if service.cores else 0


def _remaining(execution: _Execution) -> float:
    return execution.left
