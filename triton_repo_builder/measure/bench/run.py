"""Every level on every variant, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from triton_repo_builder.measure.bench import level, perf_analyzer
from triton_repo_builder.measure.bench.load.workers import WorkerPool
from triton_repo_builder.measure.bench.measure import machine
from triton_repo_builder.measure.bench.options import Variant, check, shapes
from triton_repo_builder.measure.bench.prepare import prepare
from triton_repo_builder.measure.bench.report.comparison import ratio
from triton_repo_builder.measure.bench.report.report import BenchReport, Level, Ratio
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.client import Urls

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of finished levels and of all levels."""


def run(
    urls: Urls,
    repository: Repository | None,
    options: BenchOptions,
    progress: Progress = lambda stage, done, total: None,
    *,
    pid: int | None = None,
) -> BenchReport:
    """Load one endpoint of a running server; ``repository`` is its local copy, if there is one.

    Raises ``TrbError`` if no server answers or the options do not fit it. Failed requests stop
    nothing: they are in the report.
    """
    variant = Variant(name="", urls=urls, repository=repository, endpoint=options.endpoint, pid=pid)
    return run_variants((variant,), options, progress)


def run_variants(
    variants: Sequence[Variant],
    options: BenchOptions,
    progress: Progress = lambda stage, done, total: None,
) -> BenchReport:
    """Measure each level on every variant in turn, so that drift hits all alike."""
    check(options)
    started, clock = datetime.now(timezone.utc), time.monotonic()
    prepared = [prepare(variant, options) for variant in variants]
    doubts = [note for variant in prepared for note in variant.check(options)]
    if options.perf_analyzer:
        doubts += perf_analyzer.notes(prepared, options, options.perf_analyzer)
    planned = [(shape, variant) for shape in shapes(options) for variant in prepared]
    done: list[Level] = []
    stopped: set[str] = set()
    left = 0
    with WorkerPool() as pool:
        for shape, variant in planned:
            name = " ".join(filter(None, [variant.target.variant.name, shape.title]))
            if variant.target.variant.name in stopped and not variant.target.http.answers_live():
                left += 1
                continue
            requests = variant.requests(shape, options)

            def report_stage(stage: str, name: str = name) -> None:
                progress(f"{name}: {stage}", len(done), len(planned))

            done.append(level.run(pool, variant.target, shape, requests, options, report_stage))
            if done[-1].ended:
                stopped.add(variant.target.variant.name)
    if left:
        doubts.append(f"{left} of {len(planned)} levels were not measured: the server had stopped answering")
    progress("done", len(planned), len(planned))
    return BenchReport(
        command=options.command,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        client="trb",
        servers=tuple(variant.target.server for variant in prepared),
        machine=machine.facts(),
        versions=machine.versions(),
        options=_plain(options),
        texts={
            variant.target.variant.name or variant.target.endpoint.name: variant.about for variant in prepared
        },
        levels=tuple(done),
        notes=tuple(dict.fromkeys([*(note for variant in prepared for note in variant.notes), *doubts])),
        ratios=_against_first(done, variants),
    )


def _plain(options: BenchOptions) -> dict[str, Any]:
    plain = asdict(options)
    for name in ("corpus", "replay"):
        path = getattr(options, name)
        plain[name] = str(path) if path else None
    del plain["command"], plain["perf_analyzer"]
    return plain


def _against_first(levels: Sequence[Level], variants: Sequence[Variant]) -> tuple[Ratio, ...]:
    first = {level.key: level for level in levels if level.variant == variants[0].name}
    others = (level for level in levels if level.variant != variants[0].name)
    return tuple(ratio(level, first[level.key]) for level in others if level.key in first)
