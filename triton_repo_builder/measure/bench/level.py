"""One level: warm up, measure windows until they agree, stop, sum up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import numpy as np

from triton_repo_builder.measure.bench.load.messages import (
    OK,
    OVERRUN,
    TIMEOUT,
    WorkerLoad,
)
from triton_repo_builder.measure.bench.load.requests import Payload
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.bench.measure import window_statistics
from triton_repo_builder.measure.bench.measure.bottleneck import ClientLoad, verdict
from triton_repo_builder.measure.bench.measure.snapshots import (
    Snapshot,
    covering,
    mean_gpu,
    restarted,
    truncate_at_restart,
)
from triton_repo_builder.measure.bench.measure.window_statistics import Floats, Kinds, Outcomes
from triton_repo_builder.measure.bench.options import Shape, processes
from triton_repo_builder.measure.bench.report.report import (
    Client,
    Latency,
    Level,
    Totals,
    Window,
)
from triton_repo_builder.measure.bench.target import Target
from triton_repo_builder.measure.options import SETTLED, BenchOptions
from triton_repo_builder.run.client import statistics
from triton_repo_builder.run.client.statistics import ModelSplit
from triton_repo_builder.run.serve.processes import cpu

LEAD = 0.05
"""Seconds between the order to start and the start."""
SETTLE = 1.0
"""Seconds in which the server's statistics catch up with its last answers."""

STOPPED = "the server stopped answering"
RESTARTED = "the server was restarted, or loaded the model again: its counters began at 0"

Progress = Callable[[str], None]


def run(
    pool: WorkerPool,
    target: Target,
    shape: Shape,
    payload: Payload,
    options: BenchOptions,
    progress: Progress,
) -> Level:
    """Measure one level; failed requests are counted and stop nothing."""
    return _Run(pool, target, shape, payload, options, progress).level()


def shares(shape: Shape, payload: Payload, options: BenchOptions) -> list[WorkerLoad]:
    """The load of each client process."""
    count = processes(options, shape)
    loads = []
    for number in range(count):
        clients = None
        if shape.concurrency is not None:
            clients = shape.concurrency // count + (number < shape.concurrency % count)
        loads.append(
            WorkerLoad(
                protocol="grpc" if shape.protocol == "grpc" else "http",
                address=payload.address,
                bodies=payload.bodies,
                headers=payload.headers,
                first=number * len(payload.bodies) // count,
                clients=clients,
                rate=None if shape.rate is None else shape.rate / count,
                in_flight=max(1, options.in_flight // count),
                timeout=options.timeout,
                seed=options.seed * 1000 + number,
                schedule=payload.schedule[number::count],
            )
        )
    return loads


class _Run:
    def __init__(
        self,
        pool: WorkerPool,
        target: Target,
        shape: Shape,
        payload: Payload,
        options: BenchOptions,
        progress: Progress,
    ) -> None:
        self._pool = pool
        self._target = target
        self._shape = shape
        self._options = options
        self._progress = progress
        self._loads = shares(shape, payload, options)
        self._sent = payload.sent
        self._outcomes = Outcomes()
        self._lags: list[Floats] = []

    def level(self) -> Level:
        options = self._options
        self._pool.prepare(self._loads)
        before = statistics.read_or_empty(self._target.http)
        # A log counts from its first request on, which must not come while the counters are read.
        early = [self._snapshot()] if options.replay else []
        begin = time.monotonic() + LEAD
        self._pool.begin(begin)
        self._progress("warm-up")
        _sleep_until(begin + options.warmup)
        snapshots = early or [self._snapshot()]
        self._lags.clear()
        windows: list[Window] = []
        settled, over = False, ""
        while len(windows) < options.max_windows:
            self._progress(f"window {len(windows) + 1}")
            _sleep_until(snapshots[-1].at + options.window)
            snapshots.append(self._snapshot())
            windows = self._windows(snapshots)
            settled = window_statistics.stable(windows, self._shape.mode)
            if over := self._over(snapshots):
                break
            if len(windows) >= options.min_windows and (settled or window_statistics.silent(windows)):
                break
        rest = self._pool.stop(options.timeout)
        self._outcomes.add(rest)
        totals = self._totals(before, sum(chunk.sent for chunk in rest))
        if over:
            return self._ended(snapshots, over, totals)
        return self._sum(snapshots, self._windows(snapshots), settled, totals)

    def _over(self, snapshots: Sequence[Snapshot]) -> str:
        """Reason if the server is not the measured one any more; else empty."""
        target = self._target
        if target.name in snapshots[-1].counters:
            is_new = any(restarted(snapshot, snapshots[-1], target.name) for snapshot in snapshots[:-1])
            return RESTARTED if is_new else ""
        return "" if target.http.answers_live() else STOPPED

    def _ended(self, snapshots: Sequence[Snapshot], over: str, totals: Totals) -> Level:
        """The level up to the end of the server, with the reason and the time."""
        _, ended, kinds = self._outcomes.arrays()
        kept = truncate_at_restart(snapshots, self._target.name, ended, kinds)
        windows = self._windows(kept)
        if over == STOPPED:
            over += f"; {self._last(snapshots[0].at)}"
        seconds, lost = kept[-1].at - snapshots[0].at, int(((kinds != OK) & (ended >= kept[-1].at)).sum())
        text = (
            f"{over}. The numbers are those of the first {seconds:.1f} s; {lost} requests failed after them"
        )
        settled = window_statistics.stable(windows, self._shape.mode)
        return replace(self._sum(kept, windows, settled, totals), ended=text)

    def _last(self, first: float) -> str:
        """The time of the last answer, in words."""
        _, ended, kinds = self._outcomes.arrays()
        answers = ended[kinds == OK]
        if not answers.size:
            return "it answered nothing"
        last = float(answers.max())
        clock = datetime.now(timezone.utc) - timedelta(seconds=time.monotonic() - last)
        when = f"{last - first:.1f} s into the windows" if last > first else "in the warm-up"
        return f"its last answer came {when}, at {clock:%H:%M:%S} UTC"

    def _snapshot(self) -> Snapshot:
        """Read the server, the clock, then the clients: all within a few milliseconds."""
        counters = statistics.read_or_empty(self._target.http)
        target = self._target
        used = cpu.tree_seconds(target.pid) if target.pid else None
        at = time.monotonic()
        busy = cpu.machine()
        chunks = self._pool.take()
        self._outcomes.add(chunks)
        self._lags += [np.array(chunk.lag) for chunk in chunks]
        page = statistics.read_metrics(target.metrics)[0] if target.metrics else ""
        return Snapshot(
            at=at,
            counters=counters,
            server_cpu=used,
            busy=busy,
            client_cpu=tuple(chunk.cpu for chunk in chunks),
            gpu=statistics.gpu_utilization(page),
            tokens=statistics.token_cache(page, target.models),
        )

    def _windows(self, snapshots: Sequence[Snapshot]) -> list[Window]:
        due, ended, kinds = self._outcomes.arrays()
        borders = [snapshot.at for snapshot in snapshots]
        return [window_statistics.window(due, ended, kinds, a, b) for a, b in pairwise(borders)]

    def _totals(self, before: statistics.ModelCounters, sent: int) -> Totals:
        _, _, kinds = self._outcomes.arrays()
        answered = int((kinds == OK).sum())
        expected = answered * self._options.rows

        def counted(after: statistics.ModelCounters) -> int | None:
            return statistics.rows_counted(before, after, self._target.name) if before and after else None

        # None is final: a server without statistics does not get any.
        after, _ = statistics.wait_until(
            self._target.http, lambda now: (rows := counted(now)) is None or rows >= expected, SETTLE
        )
        rows = counted(after)
        return Totals(sent=sent, answered=answered, failed=len(kinds) - answered, server_rows=rows)

    def _sum(
        self, snapshots: Sequence[Snapshot], windows: list[Window], settled: bool, totals: Totals
    ) -> Level:
        """A stable level is its last three windows; an unstable one is all of them."""
        kept = SETTLED if settled and self._options.max_windows != self._options.min_windows else 0
        first, last = snapshots[-(kept + 1) if kept else 0], snapshots[-1]
        due, ended, kinds = self._outcomes.arrays()
        whole = window_statistics.window(due, ended, kinds, first.at, last.at)
        inside = kinds[(ended >= first.at) & (ended < last.at)]
        taken = [snapshot for snapshot in snapshots if snapshot.at >= first.at]
        models, split_seconds = self._split(taken)
        called = next((model for model in models if model.model == self._target.name), None)
        server_cpu = _difference(first.server_cpu, last.server_cpu)
        model_mean = called.request_ms if called else None
        failures = self._outcomes.failures(inside)
        earlier = self._outcomes.failures(kinds[ended < first.at])
        if failures.keys() - {OVERRUN} or TIMEOUT in earlier or split_seconds != whole.seconds:
            model_mean = None  # the mean covers other requests than the clients' latency
        shape, options = self._shape, self._options
        client = self._client(first, last, whole.answered)
        return Level(
            variant=self._target.variant.name,
            endpoint=self._target.name,
            protocol=shape.protocol,
            mode=shape.mode,
            concurrency=shape.concurrency,
            rate=shape.rate,
            length=shape.length,
            rows=options.rows,
            seconds=whole.seconds,
            answered=whole.answered,
            throughput=whole.throughput,
            rows_per_second=whole.throughput * options.rows,
            latency=whole.latency,
            failures=failures,
            examples=self._outcomes.examples,
            stable=settled if len(windows) >= SETTLED else None,
            spread=window_statistics.spread(windows, shape.mode),
            windows=tuple(windows),
            models=models,
            split_seconds=split_seconds if models else None,
            outside_ms=_difference(model_mean, whole.latency.mean if whole.latency else None),
            server_cpu_ms=_per(server_cpu, whole.answered),
            server_cores=None if server_cpu is None else server_cpu / whole.seconds,
            response_cache=_part(called.cached, called.requests) if called else None,
            tokenizer_cache=_part(last.tokens[0] - first.tokens[0], sum(last.tokens) - sum(first.tokens)),
            gpu_utilization=mean_gpu(taken),
            client=client,
            bottleneck=self._bottleneck(client, whole.latency),
            totals=totals,
            ended="",
            sent=self._sent,
            goodput=self._goodput(due, ended, kinds, first.at, last.at),
        )

    def _split(self, snapshots: Sequence[Snapshot]) -> tuple[tuple[ModelSplit, ...], float]:
        """Every model between the first and the last snapshot with its counters; the seconds between them."""
        borders = covering(snapshots, self._target.models)
        begin, end = (borders[0], borders[-1]) if borders else (snapshots[0], snapshots[0])
        if end.at <= begin.at:
            return (), 0.0
        return statistics.split(begin.counters, end.counters, self._target.models), end.at - begin.at

    def _goodput(self, due: Floats, ended: Floats, kinds: Kinds, begin: float, end: float) -> float | None:
        """Answers per second that came within the objective's time."""
        if self._options.slo is None:
            return None
        good = (kinds == OK) & (ended >= begin) & (ended < end)
        return float(((ended - due)[good] * 1000 <= self._options.slo.ms).sum()) / (end - begin)

    def _client(self, first: Snapshot, last: Snapshot, answered: int) -> Client:
        seconds = last.at - first.at
        # Empty if the last snapshot was made up afterwards: what the clients used until then is unknown.
        used = [b - a for a, b in zip(first.client_cpu, last.client_cpu, strict=False)]
        lags = np.concatenate([*self._lags, np.empty(0)])
        return Client(
            processes=len(self._loads),
            busiest_core=max(used) / seconds if used else None,
            cores=sum(used) / seconds if used else None,
            cpu_ms=_per(sum(used), answered) if used else None,
            lag_ms=float(np.percentile(lags, 95)) * 1000 if lags.size else None,
            machine_busy=cpu.share(first.busy, last.busy) if used else None,
        )

    def _bottleneck(self, client: Client, latency: Latency | None) -> str:
        if client.busiest_core is None or client.cores is None:
            return ""
        load = ClientLoad(
            busiest_core=client.busiest_core,
            cores=client.cores,
            machine_busy=client.machine_busy,
            machine_cores=cpu.count(),
            lag_ms=client.lag_ms,
            p50_ms=latency.p50 if latency else None,
            same_machine=cpu.local(self._target.http.url),
            processes=client.processes,
        )
        return verdict(load, self._options.client_limit)


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _per(seconds: float | None, requests: int) -> float | None:
    return None if seconds is None or not requests else seconds * 1000 / requests


def _part(cached: float, of_all: float) -> float | None:
    """Share of hits; None without a cache or without lookups."""
    return cached / of_all if of_all > 0 else None
