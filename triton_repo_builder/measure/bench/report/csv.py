"""The report as CSV: one row per level, empty if a number is unknown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from triton_repo_builder.measure.bench.report.report import BenchReport, Level

FILES = ("report.csv",)
NEEDS = ""
COLUMNS = (
    "variant", "endpoint", "protocol", "mode", "concurrency", "rate", "length", "rows", "seconds", "answered",
    "throughput", "rows_per_second", "mean_ms", "std_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms",
    "failed", "failures", "stable", "rows_per_execution", "outside_ms", "server_cpu_ms", "server_cores",
    "gpu_utilization", "client_processes", "client_busiest_core", "client_cpu_ms", "client_lag_ms",
    "machine_busy", "bottleneck", "goodput",
)  # fmt: skip


def render(report: BenchReport, earlier: Mapping[str, bytes]) -> dict[str, bytes]:
    """The columns of ``COLUMNS``."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for level in report.levels:
        writer.writerow({key: "" if value is None else value for key, value in _row(level).items()})
    return {FILES[0]: out.getvalue().encode()}


def _row(level: Level) -> dict[str, object]:
    latency, client, main = level.latency, level.client, level.main_model
    names = ("mean", "std", "p50", "p90", "p95", "p99", "max")
    return {
        **{name: getattr(level, name) for name in COLUMNS[:12]},
        **{f"{name}_ms": getattr(latency, name) if latency else None for name in names},
        "failed": level.failed,
        "failures": "; ".join(f"{kind}: {count}" for kind, count in level.failures.items()),
        "stable": level.stable,
        "rows_per_execution": main.rows_per_execution if main else None,
        "outside_ms": level.outside_ms,
        "server_cpu_ms": level.server_cpu_ms,
        "server_cores": level.server_cores,
        "gpu_utilization": level.busiest_gpu,
        "client_processes": client.processes,
        "client_busiest_core": client.busiest_core,
        "client_cpu_ms": client.cpu_ms,
        "client_lag_ms": client.lag_ms,
        "machine_busy": client.machine_busy,
        "bottleneck": level.bottleneck,
        "goodput": level.goodput,
    }
