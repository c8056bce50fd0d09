"""The report in a folder: report.json, report.csv, report.html, front.png."""

from __future__ import annotations

import base64
import csv
import importlib.util
import io
import json
from pathlib import Path

from triton_repo_builder.base import templates
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.report import png
from triton_repo_builder.measure.bench.report.files import place
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.tune.report import MEASURED, Gain, Report, Trial

FILES = ("report.json", "report.csv", "front.png", "report.html")
GAINS = ("factor", "before", "now", "gain")


def trial_columns(objective: Objective) -> tuple[str, ...]:
    """Headers of ``trial_rows``; the fourth to the seventh column hold numbers."""
    return (
        "trial",
        "setting",
        "result",
        f"requests/s with\n{objective}",
        f"{objective.percentile} ms\nat that rate",
        "requests/s\nat most",
        "rows per\nexecution",
        "limited by",
        "why given up",
    )


def compared_columns(objective: Objective) -> tuple[str, ...]:
    """Headers of ``compared_rows``."""
    return (
        "setting",
        f"requests/s with\n{objective}",
        "in each round",
        f"{objective.percentile} ms\nat that rate",
        "times the default",
        "limited by",
    )


def open_folder(folder: Path) -> None:
    """Raise ``TrbError`` before the run rather than after it."""
    if importlib.util.find_spec(png.NEEDS) is None:
        raise TrbError(
            Code.ENGINE_MISSING,
            f"plots need {png.NEEDS}, which is not installed",
            where="--output",
            remedy='pip install "triton_repo_builder[bench]", or use --json without --output',
        )
    place(folder, {".probe": b""})
    (folder / ".probe").unlink()
    taken = next((name for name in FILES if (folder / name).is_dir()), "")
    if taken:
        raise TrbError(
            Code.OUTPUT_NOT_WRITABLE,
            "is a folder, where the report would be",
            where=str(folder / taken),
            remedy="name another folder with --output",
        )


def write(report: Report, folder: Path) -> tuple[Path, ...]:
    """Replace an older report, whole or not at all. Raises ``TrbError``."""
    plot = front(report)
    contents = {
        "report.json": text(report).encode(),
        "report.csv": _csv(report).encode(),
        "front.png": plot,
        "report.html": _html(report, plot).encode(),
    }
    return place(folder, contents)


def text(report: Report) -> str:
    """The text of report.json."""
    return json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n"


def front(report: Report) -> bytes:
    """Capacity and latency of every trial that was measured, and the Pareto front."""
    best = {trial.number for trial in report.front}
    measured = [trial for trial in report.trials if trial.status == MEASURED]
    default = report.default
    groups = {
        "other settings": [_point(trial) for trial in measured if trial.number not in best],
        "Pareto front": [_point(trial) for trial in report.front],
        "default": [_point(default)] if default and default.status == MEASURED else [],
    }
    labels = ("requests per second", f"{report.objective.percentile} in ms")
    return png.scatter(groups, "Pareto front", labels, report.objective.ms)


def _point(trial: Trial) -> tuple[float, float]:
    return trial.capacity, trial.latency_ms or 0.0


def number(value: float | None, digits: int = 1) -> str:
    """A number as text for a cell."""
    return "-" if value is None else f"{value:,.{digits}f}"


def trial_rows(report: Report) -> list[list[str]]:
    """Rows of trials: the best first, then pruned, unmet and failed ones."""
    ordered = sorted(report.trials, key=lambda trial: (-trial.capacity, -trial.saturation))
    front = {trial.number for trial in report.front}
    return [
        [
            str(trial.number),
            trial.name,
            trial.status + (", Pareto front" if trial.number in front else ""),
            number(trial.capacity) if trial.capacity else "-",
            number(trial.latency_ms) if trial.status == MEASURED else "-",
            number(trial.saturation),
            number(trial.rows_per_execution, 2),
            trial.bottleneck,
            trial.reason,
        ]
        for trial in ordered
    ]


def compared_rows(report: Report) -> list[list[str]]:
    """The default and the finalists."""
    return [
        [
            each.name,
            number(each.capacity),
            ", ".join(f"{value:.1f}" for value in each.capacities),
            number(each.latency_ms),
            "-" if each.ratio is None else f"{each.ratio:.2f} x ({each.lowest:.2f} to {each.highest:.2f})",
            each.bottleneck,
        ]
        for each in report.compared
    ]


def gain_rows(report: Report) -> list[list[str]]:
    """Each factor of the chosen setting."""
    return [[gain.factor, gain.before, gain.after, _gain(gain)] for gain in report.gains]


def _gain(gain: Gain) -> str:
    if gain.gain is None:
        return "not measured"
    return f"{'at least ' if gain.at_least else ''}{gain.gain:.2f} x"


def _csv(report: Report) -> str:
    names = list(report.space)
    fields = [
        "number", "status", "capacity", "latency_ms", "saturation", "rows_per_execution", "bottleneck",
        "reason", "overhead", "seconds",
    ]  # fmt: skip
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*fields, *names])
    for trial in report.trials:
        values = [getattr(trial, field) for field in fields] + [trial.setting.get(name) for name in names]
        writer.writerow(["" if value is None else value for value in values])
    return out.getvalue()


def _html(report: Report, plot: bytes) -> str:
    return templates.render(
        "tune_report.html.jinja",
        report=report,
        plot=base64.b64encode(plot).decode(),
        trials=(trial_columns(report.objective), trial_rows(report)),
        compared=(compared_columns(report.objective), compared_rows(report)),
        gains=(GAINS, gain_rows(report)),
        run=[
            ("machine", report.machine.items()),
            ("versions", report.versions.items()),
            ("space", report.space.items()),
        ],
    )
