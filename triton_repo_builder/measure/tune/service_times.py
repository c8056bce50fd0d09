"""The time of an execution by its rows, for the simulations of ``trb plan``: few clients, many rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from triton_repo_builder.measure.bench.options import Variant
from triton_repo_builder.measure.bench.report.report import Latency, Level
from triton_repo_builder.measure.capacity.service import Service, Stage
from triton_repo_builder.measure.tune.capacity import Meter
from triton_repo_builder.measure.tune.factors import THREAD_PARAMETER, Member, Subject

SIZES = (1, 2, 4, 8, 16, 32)
LONGEST = 5.0
"""Seconds of a window, however many texts there are."""
SECONDS = LONGEST * (len(SIZES) + 1)
"""About the most that all windows take."""
JOINED = 1.2
"""From this ratio of an execution's rows to a request's rows on, requests were joined."""
COMPUTES = 0.3
"""Cores that a request must keep busy to count as computing on this machine's CPU."""
LEAST = 0.05
"""Share of the median that a request computes at least."""
QUANTILES = ((0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (1.0, "max"))


def measure(
    meter: Meter, variant: Variant, subject: Subject, cores: int, *, whole: bool = True
) -> Service | None:
    """Service times of the endpoint as loaded now; None if the server gives no statistics.

    ``whole``: each window is long enough for every text of the corpus.
    """
    inner = [member for member in subject.members if not member.ensemble]
    most = max(1, min(member.config.max_batch_size or 1 for member in subject.members))
    sizes = [size for size in SIZES if size <= most]
    seconds = _once(meter, variant) if whole else 0.0
    first = meter.closed(variant, clients=1, seconds=seconds)
    main = max(inner, key=lambda member: execution_ms(first, member.name))
    # Batches form while another is computed. Of several instances the other one would compute meanwhile.
    clients = 2 if _instances(main) == 1 else 1
    larger = (rows for rows in sizes if rows > 1)
    measured = {1: first} | {rows: meter.closed(variant, clients, rows, seconds=seconds) for rows in larger}
    if first.latency is None or not all(execution_ms(first, member.name) for member in inner):
        return None
    stages = tuple(_stage(member, measured) for member in inner)
    inside = sum(stage.batch_ms[1] for stage in stages)
    outside = first.latency.mean - inside
    computed = sum(stage.batch_ms[1] * stage.threads for stage in stages)
    used = first.server_cores
    return Service(
        stages=stages,
        # What the server computes beside the models may go on after the answer, and takes its share of cores.
        overhead_ms=max(0.0, outside, (first.server_cpu_ms or 0.0) - computed),
        cores=cores if used is None or used > COMPUTES else 0,
        spread=spread(first.latency, max(0.0, outside)),
        contention=_contention(meter, variant, stages, seconds, cores),
    )


def _contention(meter: Meter, variant: Variant, stages: Sequence[Stage], seconds: float, cores: int) -> float:
    """Slowdown of concurrent executions of the slowest model, of as many as have their own cores."""
    main = max(stages, key=lambda stage: stage.time(1))
    rows, clients = max(main.batch_ms), min(main.instances, cores // main.threads)
    if clients < 2:
        return 1.0
    together = meter.closed(variant, clients=clients, rows=rows, seconds=seconds)
    return slowdown(main, together, rows)


def slowdown(stage: Stage, together: Level, rows: int) -> float:
    """Time of an execution of so many rows over its time alone; 1 where requests were joined."""
    split = next((each for each in together.models if each.model == stage.model), None)
    if split is None or (split.rows_per_execution or rows) > JOINED * rows:
        return 1.0
    return max(1.0, execution_ms(together, stage.model) / stage.time(rows))


def _once(meter: Meter, variant: Variant) -> float:
    """Seconds in which every text is sent once: means of a part are of that part's lengths."""
    rate = meter.closed(variant, clients=1).throughput
    return min(LONGEST, meter.inputs(variant) / rate) if rate else 0.0


def _stage(member: Member, measured: dict[int, Level]) -> Stage:
    config = member.config
    batching = config.dynamic_batching
    delay = int((batching or {}).get("max_queue_delay_microseconds") or 0)
    times = {rows: time for rows, level in measured.items() if (time := execution_ms(level, member.name))}
    return Stage(
        model=member.name,
        instances=_instances(member),
        max_batch=config.max_batch_size if batching is not None and config.max_batch_size else 1,
        delay_ms=delay / 1000,
        threads=max(1, int(config.parameters.get(THREAD_PARAMETER) or 1)),
        batch_ms=times,
    )


def _instances(member: Member) -> int:
    return max(1, sum(group.count for group in member.config.instance_groups))


def execution_ms(level: Level, model: str) -> float:
    """Milliseconds of an execution with all rows of a request; 0 if it is not known."""
    split = next((each for each in level.models if each.model == model), None)
    parts = (split.input_ms, split.infer_ms, split.output_ms) if split else ()
    return sum(part or 0.0 for part in parts)


def spread(latency: Latency, outside: float) -> tuple[tuple[float, float], ...]:
    """Spread of single requests in the models, without a queue: quantiles over the mean, which is 1.

    ``outside`` are the milliseconds of every request beside the models.
    """
    points = [(share, float(getattr(latency, name))) for share, name in QUANTILES]
    # The fastest is not in the report; as far below the median as the 90th percentile is above, at most half.
    lowest = max(latency.p50 / 2, 2 * latency.p50 - latency.p90)
    least = LEAST * latency.p50
    curve = [(share, max(least, value - outside)) for share, value in ((0.0, lowest), *points)]
    mean = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(curve))
    return tuple((share, value / mean) for share, value in curve)
