"""The published comparison's rows for this machine: {base, db, ig, ig-db} for each precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triton_repo_builder.base import hardware
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.bench.target import find as find_target
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.measure.tune import bottleneck, factors
from triton_repo_builder.measure.tune.capacity import Meter, SettingCapacity, find
from triton_repo_builder.measure.tune.factors import BATCHING, INSTANCES, OFF, VARIANT, Value
from triton_repo_builder.measure.tune.live import FAILURES, Live, TrialFailed, told

SEVERAL = 2
"""Instances of ``ig``, as in the published table."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table."""

    endpoint: str
    name: str
    batching: bool
    instances: int
    per_minute: float
    """At the objective; 0 if it holds at no rate."""
    latency_ms: float | None
    bottleneck: str
    reason: str


def measure(
    live: Live,
    endpoints: tuple[str, ...],
    objective: Objective,
    options: BenchOptions,
    progress: Callable[[str, int, int], None],
) -> tuple[Row, ...]:
    """Every row in turn. Raises ``TrbError`` for an endpoint that cannot batch."""
    rows: list[Row] = []
    cores = hardware.here().cores
    with live, WorkerPool() as pool:
        meter = Meter(pool=pool, options=options, objective=objective)
        names = [endpoint or find_target(live.variant("")).name for endpoint in endpoints]
        subjects = [live.add(name) for name in names]
        for subject in subjects:
            space = factors.space(subject, cores)
            base = {VARIANT: subject.endpoint, **factors.default(space)}
            if BATCHING not in base:
                raise TrbError(
                    Code.NOT_BATCHABLE,
                    "cannot batch, so that there is nothing to compare",
                    where=subject.endpoint,
                    remedy="see 'trb inspect' for the reason",
                )
            for batching in (False, True):
                for instances in (1, SEVERAL):
                    name = "-".join([*["ig"] * (instances > 1), *["db"] * batching]) or "base"
                    progress(f"{subject.endpoint} {name}", len(rows), 4 * len(subjects))
                    setting: dict[str, Value] = {
                        **base,
                        INSTANCES: instances,
                        BATCHING: 0 if batching else OFF,
                    }
                    try:
                        live.apply(setting, base)
                        capacity = find(
                            meter, live.variant(subject.endpoint), clients=factors.clients(setting)
                        )
                        if not live.http.answers_live():
                            raise TrialFailed("the server ended")
                    except FAILURES as error:
                        if isinstance(error, TrbError) and error.code in (Code.NOT_EXPLICIT, Code.USAGE):
                            raise
                        live.revive()
                        capacity = SettingCapacity(rate=0, level=None, saturation=0, reason=told(error))
                    rows.append(
                        Row(
                            endpoint=subject.endpoint,
                            name=name,
                            batching=batching,
                            instances=instances,
                            per_minute=capacity.rate * 60,
                            latency_ms=capacity.latency(objective) if capacity.rate else None,
                            bottleneck=bottleneck.name(capacity.level, cores),
                            reason=capacity.reason,
                        )
                    )
    return tuple(rows)
