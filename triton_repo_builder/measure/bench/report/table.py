"""The report for people: the rows that the terminal and the page both show, and the remarks."""

from __future__ import annotations

from triton_repo_builder.measure.bench.load.messages import OVERRUN, TIMEOUT
from triton_repo_builder.measure.bench.report.report import (
    BenchReport,
    Level,
    Ratio,
)
from triton_repo_builder.measure.options import SETTLED

NOISE = 0.15
"""Share of the machine that other programs may use before a reader should know."""


def number(value: float | None, digits: int = 1) -> str:
    """A number for people; a dash if it is unknown."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def level_table(report: BenchReport) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the main table."""
    several = len({level.variant for level in report.levels}) > 1
    lengths = any(level.length for level in report.levels)
    gpu = any(level.gpu_utilization for level in report.levels)
    goodput = any(level.goodput is not None for level in report.levels)
    header = [
        *(["variant"] if several else []),
        "protocol",
        "load",
        *(["length"] if lengths else []),
        "req/s",
        *(["in time/s"] if goodput else []),
        *("p50 ms", "p95 ms", "p99 ms", "failed", "rows/exec", "server CPU ms/req"),
        *(["busiest GPU"] if gpu else []),
        *("client core", "stable"),
    ]
    return header, [_cells(level, several, lengths, gpu, goodput) for level in report.levels]


def _cells(level: Level, several: bool, lengths: bool, gpu: bool, goodput: bool) -> list[str]:
    latency, main = level.latency, level.main_model
    return [
        *([level.variant] if several else []),
        level.protocol,
        level.load,
        *([str(level.length or "")] if lengths else []),
        number(level.throughput),
        *([number(level.goodput)] if goodput else []),
        *(number(getattr(latency, name) if latency else None, 2) for name in ("p50", "p95", "p99")),
        str(level.failed),
        number(main.rows_per_execution if main else None, 2),
        number(level.server_cpu_ms, 2),
        *([_percent(level.busiest_gpu)] if gpu else []),
        _percent(level.client.busiest_core),
        _stability(level),
    ]


def _stability(level: Level) -> str:
    if level.stable is None:
        return "unknown"
    if level.stable:
        return "yes"
    values = [value for value in level.spread.values() if value is not None]
    return f"no, ±{max(values):.0%}" if values else "no"


MODEL_HEADER = (
    "load",
    "model",
    "req/s",
    "rows/exec",
    "total ms",
    "queue",
    "input",
    "infer",
    "output",
    "failed",
)


def model_table(report: BenchReport) -> list[list[str]]:
    """Rows of the split per model; times are means per request in milliseconds."""
    rows = []
    for level in report.levels:
        name = " ".join(filter(None, [level.variant, level.protocol, level.load, _length(level)]))
        for position, model in enumerate(level.models):
            times = (model.request_ms, model.queue_ms, model.input_ms, model.infer_ms, model.output_ms)
            rows.append(
                [
                    name if not position else "",
                    model.model,
                    number(model.requests / level.split_seconds if level.split_seconds else None),
                    number(model.rows_per_execution, 2),
                    *(number(value, 2) for value in times),
                    str(model.failed),
                ]
            )
        if level.outside_ms is not None:
            rows.append(["", "(outside the server)", "", "", number(level.outside_ms, 2), *[""] * 5])
    return rows


def _length(level: Level) -> str:
    return f"length {level.length}" if level.length else ""


RATIO_HEADER = ("level", "throughput", "p50", "p99", "server CPU")


def ratio_table(ratios: tuple[Ratio, ...]) -> list[list[str]]:
    """Rows of ratios, as ``1.35 x``."""
    return [
        [
            " ".join(filter(None, [ratio.variant, ratio.level])),
            *(
                "-" if value is None else f"{value:.2f} x"
                for value in (ratio.throughput, ratio.p50, ratio.p99, ratio.server_cpu)
            ),
        ]
        for ratio in ratios
    ]


def remarks(report: BenchReport) -> list[str]:
    """Remarks on the numbers, each once."""
    lines = list(report.notes)
    for level in report.levels:
        name = " ".join(filter(None, [level.variant, level.protocol, level.load, _length(level)]))
        if level.ended:
            lines.append(f"{name}: {level.ended}")
        if level.bottleneck:
            lines.append(f"{name}: {level.bottleneck}")
        if (share := others(level, report.machine.get("cores") or 1)) > NOISE:
            lines.append(f"{name}: other programs used {share:.0%} of this machine's CPU; it can do better")
        if level.response_cache:
            lines.append(f"{name}: {level.response_cache:.0%} of requests answered from the response cache")
        if level.tokenizer_cache is not None:
            lines.append(f"{name}: {level.tokenizer_cache:.0%} of texts found in the tokenizer cache")
        for kind, count in level.failures.items():
            example = level.examples.get(kind)
            lines.append(f"{name}: {count} failed, {kind}" + (f": {example}" if example else ""))
        lines += [f"{name}: {text}" for text in (*_twice(level), *_partly(level))]
        if not level.stable:
            lines.append(f"{name}: {_unstable(level)}")
    return lines


def others(level: Level, cores: int) -> float:
    """Share of the machine that neither server nor clients used; 0 if that is unknown."""
    client = level.client
    if client.machine_busy is None or client.cores is None or level.server_cores is None:
        return 0.0
    return client.machine_busy - (level.server_cores + client.cores) / cores


def _twice(level: Level) -> list[str]:
    """An ensemble's own row counts failures twice: measured, 6 for 3 requests (tritonserver 2.51)."""
    return [
        f"{row.model} is an ensemble: Triton counts a request that failed in it twice, hence {row.failed} in "
        f"the table; the clients saw {level.failed}"
        for row in level.models
        if row.model == level.endpoint and row.failed > level.failed and len(level.models) > 1
    ]


def _partly(level: Level) -> list[str]:
    """Why the split covers other requests than the clients' latencies."""
    if level.outside_ms is not None or level.split_seconds is None:
        return []
    if level.split_seconds < level.seconds:
        return [
            f"the split per model covers {level.split_seconds:.1f} of {level.seconds:.1f} s: after that the "
            "statistics lacked a model (it was unloaded, or the server was too busy to answer)"
        ]
    if level.failures.keys() - {OVERRUN} or TIMEOUT in level.examples:
        return [
            "time outside the server is unknown: failed requests are in the server's times, not in the "
            "clients' latencies"
        ]
    return []


def _unstable(level: Level) -> str:
    count = len(level.windows)
    if level.stable is None:
        had = "was 1" if count == 1 else f"were {count}"
        return f"whether it is stable is unknown: that takes {SETTLED} windows, and there {had}"
    spreads = [f"{name} ±{value:.0%}" for name, value in level.spread.items() if value is not None]
    how = f"the last differ by {', '.join(spreads)}" if spreads else "nothing was answered in some of them"
    return f"not stable after {count} windows; {how}"
