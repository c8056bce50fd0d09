"""The simulator of ``trb plan`` against measurements: one and two server processes here, three loads each.

    .venv/bin/python benchmarks/plan_simulator.py [--seconds 40]

Every server has one instance with one thread. What the simulator is given was measured with one client, and
with two for larger batches: the time of a batch by its size, how much single requests differ, and the CPU of
a request outside of the models, the client's included, for the clients share the cores. That is measured
before and after each load, for the speed of a rented machine changes within minutes; the mean of the two is
simulated. The load is of arrivals by chance, at a share of the capacity that follows from the first, and the
simulated arrivals are the same. How much two servers that compute at the same time slow each other down is
measured as well. All loads are on the page.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import common
import numpy as np
from common import Result, Server, number, say

from triton_repo_builder import repository
from triton_repo_builder.measure import bench
from triton_repo_builder.measure.bench.load import worker
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.bench.options import Variant
from triton_repo_builder.measure.capacity import simulate
from triton_repo_builder.measure.capacity.service import Service
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.tune import factors, service_times
from triton_repo_builder.measure.tune.capacity import Meter
from triton_repo_builder.repository import composition
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.demo import samples
from triton_repo_builder.run.serve.processes import cpu

SHARES = (0.3, 0.5, 0.7)
LIMITS = {"p50": 0.15, "p99": 0.30}
NAME = "minilm"
WARMUP = 1.0
DRAWS = 10
BOTH = 8
"""Rows of the requests that go to both servers at once."""


def calibrate(servers: Sequence[Server], path: Path) -> Service:
    """What one server does now while the others are idle, and how much they slow each other down."""
    http = HttpClient(servers[0].urls.http)
    names = composition.members((NAME,), http.steps_of)
    subject = factors.subject(NAME, {name: http.config(name) for name in names})
    options = bench.BenchOptions(endpoint=NAME, concurrency=(1,), warmup=0.5, window=1.0)
    variants = [
        Variant(name="", urls=server.urls, repository=repository.read(path), endpoint=NAME, pid=server.pid)
        for server in servers
    ]
    with ExitStack() as stack:
        meters = [
            Meter(
                pool=stack.enter_context(WorkerPool()),
                options=options,
                objective=Objective(percentile="p99", ms=1000),
            )
            for _ in servers
        ]
        service = service_times.measure(meters[0], variants[0], subject, cpu.count())
        alone = meters[0].closed(variants[0], clients=1, seconds=service_times.LONGEST)
        with ThreadPoolExecutor(len(servers)) as threads:
            together = list(
                threads.map(
                    lambda meter, variant: meter.closed(variant, 1, BOTH, seconds=3), meters, variants
                )
            )
    assert service is not None and alone.server_cpu_ms is not None and alone.client.cpu_ms is not None
    # Of the same window: the difference of two would be mostly noise.
    models = sum(service_times.execution_ms(alone, stage.model) * stage.threads for stage in service.stages)
    beside = alone.server_cpu_ms + alone.client.cpu_ms - models
    return replace(
        service,
        overhead_ms=max(service.overhead_ms, beside),
        contention=float(
            np.mean([service_times.slowdown(service.stages[-1], level, BOTH) for level in together])
        ),
    )


def between(before: Service, after: Service) -> Service:
    """The mean of two calibrations."""
    stages = tuple(
        replace(a, batch_ms={size: (time + b.batch_ms[size]) / 2 for size, time in a.batch_ms.items()})
        for a, b in zip(before.stages, after.stages, strict=True)
    )
    pairs = zip(before.spread, after.spread, strict=True)
    return replace(
        before,
        stages=stages,
        overhead_ms=(before.overhead_ms + after.overhead_ms) / 2,
        spread=tuple((share, (own + other) / 2) for (share, own), (_, other) in pairs),
        contention=(before.contention + after.contention) / 2,
    )


def measure(servers: list[Server], path: Path, rate: float, seconds: float, seed: int) -> list[bench.Level]:
    """The load spread over all servers at the same time."""

    def one(number: int) -> bench.Level:
        options = bench.BenchOptions(
            endpoint=NAME,
            concurrency=(),
            rates=(rate / len(servers),),
            warmup=WARMUP,
            window=seconds,
            min_windows=1,
            max_windows=1,
            processes=1,
            seed=seed + number,
        )
        server = servers[number]
        return bench.run(server.urls, repository.read(path), options, pid=server.pid).levels[0]

    with ThreadPoolExecutor(len(servers)) as threads:
        return list(threads.map(one, range(len(servers))))


def predict(service: Service, rate: float, servers: int, seconds: float, seed: int) -> dict[str, float]:
    """The arrivals of ``measure`` once more; how long each request computes is drawn several times.

    The arrivals are the same because near saturation chance alone moves the median.
    """
    streams = [
        takewhile((WARMUP + seconds).__gt__, worker.poisson_arrivals(rate / servers, (seed + number) * 1000))
        for number in range(servers)
    ]
    merged = sorted((due, number) for number, stream in enumerate(streams) for due in stream)
    due = np.array([due for due, _ in merged])
    where = np.array([number for _, number in merged])
    draws = []
    for draw in range(DRAWS):
        latencies = simulate.run(service, due, draw, where)
        each = [latencies[(where == number) & (due >= WARMUP)] for number in range(servers)]
        draws.append({name: np.mean([np.percentile(own, int(name[1:])) for own in each]) for name in LIMITS})
    return {name: float(np.mean([draw[name] for draw in draws])) for name in LIMITS}


def main() -> None:
    parser = common.parser(__doc__, rounds=1)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each load (default %(default)s)")
    arguments = parser.parse_args()
    result = Result("plan_simulator", "The simulator of trb plan against measurements", arguments.output)
    rows, runs = [], []
    with common.scratch() as folder, ExitStack() as stack:
        path = folder / "repository"
        common.ours(samples.minilm_int8(folder / "model"), path, NAME, instances=1, threads=1)
        servers = [stack.enter_context(common.served(path, arguments.server)) for _ in range(2)]
        before = calibrate(servers, path)
        for processes in (1, 2):
            for share in SHARES:
                stages = [replace(stage, instances=stage.instances * processes) for stage in before.stages]
                rate = share * replace(before, stages=tuple(stages)).per_second
                for attempt in range(common.ATTEMPTS):
                    begun, foreign = time.monotonic(), common.foreign()
                    seed = round(share * 100) + attempt
                    levels = measure(servers[:processes], path, rate, arguments.seconds, seed)
                    after = calibrate(servers, path)
                    others = max(0.0, common.foreign() - foreign) / (time.monotonic() - begun)
                    if others <= common.FOREIGN:
                        break
                    say(f"other programs used {others:.2f} cores: this load is taken again")
                    before = after
                service = between(before, after)
                drift = after.per_second / before.per_second - 1
                before = after
                expected = predict(service, rate, processes, arguments.seconds, seed)
                own = {
                    name: float(np.mean([getattr(level.latency, name) for level in levels]))
                    for name in LIMITS
                }
                off = {name: expected[name] / own[name] - 1 for name in LIMITS}
                within = all(abs(off[name]) <= limit for name, limit in LIMITS.items())
                answered = sum(level.throughput for level in levels)
                say(f"{processes} x {rate:.0f}/s: {own} measured, {expected} simulated")
                rows.append(
                    [
                        f"{processes} process{'es' * (processes > 1)}, {share:.0%}",
                        number(rate),
                        number(answered),
                        *(
                            cell
                            for name in LIMITS
                            for cell in (number(own[name]), number(expected[name]), f"{off[name]:+.0%}")
                        ),
                        f"{drift:+.0%}",
                        number(others, 2),
                        "yes" if within else "no",
                    ]
                )
                runs.append(
                    {
                        **{"processes": processes, "rate": rate, "measured": own, "simulated": expected},
                        "service": service.to_json(),
                    }
                )
    head = ["load, of the capacity", "rate/s", "answered/s"]
    head += [cell for name in LIMITS for cell in (f"{name} ms", "simulated", "off")]
    result.add(
        "Servers of one instance with one thread, all-MiniLM-L6-v2 (the sample of `trb demo`), mixed "
        "lengths, clients on the same machine. Aim: the 50th percentile within 15 %, the 99th within 30 %.",
        common.table([*head, "speed after / before", "other programs, cores", "within"], rows),
        "At the last load, the CPU of a request outside of the models, the client's included: "
        f"{service.overhead_ms:.2f} ms, and an execution takes {service.contention:.2f} times as long while "
        "the other server computes. Time of an execution by its rows, in ms:",
        common.table(
            ["model", *(str(size) for size in service.stages[-1].batch_ms)],
            [
                [stage.model, *(number(time, 2) for time in stage.batch_ms.values())]
                for stage in service.stages
            ],
        ),
    )
    result.data |= {"runs": runs}
    result.write()


if __name__ == "__main__":
    main()
