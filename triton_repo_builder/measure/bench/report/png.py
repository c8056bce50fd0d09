"""Plots of a report, mostly PNG. Only importer of matplotlib, which the ``bench`` extra brings."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triton_repo_builder.measure.bench.options import CLOSED, OPEN
from triton_repo_builder.measure.bench.report.report import BenchReport, Level

FILES = ("throughput.png", "latency.png")
NEEDS = "matplotlib"
WIDTH, HEIGHT, DPI = 7.2, 4.2, 110
UNDATED: Mapping[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
"""Formats, and the metadata to leave out."""
PAIR = 0.4
"""Width of one of two bars."""
Series = dict[str, list[Level]]
Draw = Callable[[Any, list[Level], str, str], None]
"""Draws one line: axes, levels, name, colour."""


def render(report: BenchReport, earlier: Mapping[str, bytes]) -> dict[str, bytes]:
    """Both plots."""
    return {"throughput.png": throughput(report), "latency.png": latency(report)}


def throughput(report: BenchReport) -> bytes:
    """Answered requests per second over the load."""

    def draw(axes: Any, levels: list[Level], name: str, colour: str) -> None:
        values = [level.throughput for level in levels]
        axes.plot(_loads(levels), values, marker="o", color=colour, label=name)

    return _plot(report, draw, "answered requests per second", logarithmic=False)


def latency(report: BenchReport) -> bytes:
    """Median and 99th percentile over the load."""

    def draw(axes: Any, levels: list[Level], name: str, colour: str) -> None:
        answered = [level for level in levels if level.latency]
        for part, line in (("p50", "-"), ("p99", "--")):
            values = [getattr(level.latency, part) for level in answered]
            axes.plot(
                _loads(answered), values, line, marker="o", color=colour, label=f"{name} {part}".strip()
            )

    return _plot(report, draw, "latency in ms", logarithmic=True)


def bars(panels: Mapping[str, Mapping[str, float]]) -> bytes:
    """A panel for each title, in it a bar for each name with its number."""
    figure = _figure(WIDTH / 2 * len(panels))
    for axes, (title, values) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        drawn = axes.bar(range(len(values)), list(values.values()), color="C0")
        axes.bar_label(drawn, fmt="%.4g")
        axes.set_xticks(range(len(values)), list(values), rotation=20, ha="right")
        axes.set_title(title)
    return _png(figure)


def paired(
    panels: Mapping[str, Mapping[str, tuple[float, float]]], names: tuple[str, str], form: str = "png"
) -> bytes:
    """A panel for each title, in it two bars for each name, in percent; ``names`` go into the legend.

    ``form``: one of ``UNDATED``.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = _figure(WIDTH * 0.8 * columns, HEIGHT * 0.75 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes, (title, values) in zip(grid, panels.items(), strict=False):
        for number, name in enumerate(names):
            places = [place + (number - 0.5) * PAIR for place in range(len(values))]
            heights = [100 * pair[number] for pair in values.values()]
            axes.bar(places, heights, PAIR, color=("C7", "C1")[number], label=name)
        axes.set_xticks(range(len(values)), list(values), rotation=40, ha="right", fontsize="small")
        axes.set_title(title, fontsize="medium")
        axes.set_ylabel("%")
        axes.grid(alpha=0.3, axis="y")
        axes.legend(fontsize="small")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return _png(figure, form)


def scatter(
    groups: Mapping[str, Sequence[tuple[float, float]]], line: str, labels: tuple[str, str], limit: float
) -> bytes:
    """Points of each group; those of ``line`` are joined, and a horizontal line is drawn at ``limit``."""
    figure = _figure(WIDTH)
    axes = figure.subplots()
    for number, (name, points) in enumerate(groups.items()):
        if points:
            style = "-o" if name == line else "o"
            axes.plot(*zip(*points, strict=True), style, color=f"C{number}", label=name)
    axes.axhline(limit, linestyle="--", color="gray")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if any(groups.values()):
        axes.legend(fontsize="small")
    return _png(figure)


def series(levels: Sequence[Level]) -> Series:
    """Levels by the line they belong to; a line's name holds only what differs between the lines."""
    parts = [(level.variant, level.protocol, _length(level)) for level in levels]
    differs = [len({part[column] for part in parts}) > 1 for column in range(3)]
    lines: Series = {}
    for level, part in zip(levels, parts, strict=True):
        name = " ".join(text for text, shown in zip(part, differs, strict=True) if shown and text)
        lines.setdefault(name, []).append(level)
    return {name: sorted(group, key=_load) for name, group in lines.items()}


def _length(level: Level) -> str:
    return f"length {level.length}" if level.length else ""


def _load(level: Level) -> float:
    return float(level.concurrency or level.rate or 0)


def _loads(levels: Sequence[Level]) -> list[float]:
    return [_load(level) for level in levels]


def _plot(report: BenchReport, draw: Draw, label: str, *, logarithmic: bool) -> bytes:
    """A panel for the closed loop and one for the open loop: clients and rates share no axis."""
    modes = [
        (title, levels)
        for mode, title in ((CLOSED, "clients at once"), (OPEN, "requests per second that arrive"))
        for levels in [[level for level in report.levels if level.mode == mode]]
        if levels
    ]
    figure = _figure(WIDTH * max(1, len(modes)))
    panels = figure.subplots(1, max(1, len(modes)), squeeze=False)[0]
    for axes, (title, levels) in zip(panels, modes, strict=False):
        for number, (name, group) in enumerate(series(levels).items()):
            draw(axes, group, name, f"C{number % 10}")
        axes.set_xlabel(title)
        axes.set_ylabel(label)
        _scale(axes, levels, logarithmic)
    return _png(figure)


def _figure(width: float, height: float = HEIGHT) -> Any:
    # Not pyplot: it would look for a display and keep every figure alive.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # A matplotlibrc in the current folder may have labels run through latex.
    matplotlib.rcdefaults()
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Any, form: str = "png") -> bytes:
    import matplotlib

    out = io.BytesIO()
    # No date and no version inside, and no random ids: the same report gives the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "trb"}):
        figure.savefig(out, format=form, metadata=UNDATED[form])
    return out.getvalue()


def _scale(axes: Any, levels: list[Level], logarithmic: bool) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    loads = sorted(set(_loads(levels)))
    axes.set_xscale("log", base=2)
    axes.set_xticks(loads, [f"{load:g}" for load in loads])
    axes.minorticks_off()
    if logarithmic and any(level.latency for level in levels):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if any(text for text in axes.get_legend_handles_labels()[1]):
        axes.legend(fontsize="small")
