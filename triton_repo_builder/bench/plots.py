"""PNG plots of a report. Only importer of matplotlib, which the ``bench`` extra brings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from triton_repo_builder.bench.options import OPEN
from triton_repo_builder.bench.report import BenchReport, Level
from triton_repo_builder.errors import Exit, TrbError

WIDTH, HEIGHT, DPI = 7.2, 4.2, 110
Series = dict[str, list[Level]]


def require() -> None:
    """Raise ``TrbError`` where matplotlib is missing: before the run, not after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise TrbError(
            Exit.ENGINE_MISSING,
            "plots need matplotlib, which is not installed",
            where="--output",
            remedy='pip install "triton_repo_builder[bench]", or use --json without --output',
        ) from None


def throughput(report: BenchReport) -> bytes:
    """Answered requests per second over the load."""
    figure, axes = _figure()
    for name, levels in series(report.levels).items():
        axes.plot(_loads(levels), [level.throughput for level in levels], marker="o", label=name)
    axes.set_ylabel("answered requests per second")
    axes.set_ylim(bottom=0)
    return _finish(figure, axes, report)


def latency(report: BenchReport) -> bytes:
    """Median and 99th percentile over the load."""
    figure, axes = _figure()
    for number, (name, levels) in enumerate(series(report.levels).items()):
        known = [level for level in levels if level.latency]
        for part, line in (("p50", "-"), ("p99", "--")):
            values = [getattr(level.latency, part) for level in known]
            axes.plot(
                _loads(known),
                values,
                line,
                marker="o",
                color=f"C{number % 10}",
                label=f"{name} {part}".strip(),
            )
    axes.set_ylabel("latency in ms")
    if any(level.latency for level in report.levels):
        axes.set_yscale("log")
    return _finish(figure, axes, report)


def series(levels: Sequence[Level]) -> Series:
    """Levels by the line they belong to; a name says only what differs between the lines."""
    parts = [
        (level.variant, level.protocol, "open loop" if level.mode == OPEN else "", _length(level))
        for level in levels
    ]
    telling = [len({part[column] for part in parts}) > 1 for column in range(4)]
    found: Series = {}
    for level, part in zip(levels, parts, strict=True):
        name = " ".join(text for text, tells in zip(part, telling, strict=True) if tells and text)
        found.setdefault(name, []).append(level)
    return {name: sorted(group, key=_load) for name, group in found.items()}


def _length(level: Level) -> str:
    return f"length {level.length}" if level.length else ""


def _load(level: Level) -> float:
    return float(level.concurrency or level.rate or 0)


def _loads(levels: Sequence[Level]) -> list[float]:
    return [_load(level) for level in levels]


def _figure() -> tuple[Any, Any]:
    # Not pyplot: it would look for a display and keep every figure alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _finish(figure: Any, axes: Any, report: BenchReport) -> bytes:
    closed = any(level.mode != OPEN for level in report.levels)
    opened = any(level.mode == OPEN for level in report.levels)
    axes.set_xlabel(" / ".join(["clients at once"] * closed + ["requests per second that arrive"] * opened))
    loads = sorted({_load(level) for level in report.levels})
    if loads and loads[0] > 0:
        axes.set_xscale("log", base=2)
        axes.set_xticks(loads, [f"{load:g}" for load in loads])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    if any(text for text in axes.get_legend_handles_labels()[1]):
        axes.legend(fontsize="small")
    out = io.BytesIO()
    # No date and no version inside: the same report gives the same bytes.
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
