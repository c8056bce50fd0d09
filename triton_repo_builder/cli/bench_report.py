"""A bench report on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_repo_builder.cli import console

if TYPE_CHECKING:
    from triton_repo_builder.measure.bench import BenchReport

LEFT = {"variant", "protocol", "load", "length", "model", "level", "stable"}


def print_report(report: BenchReport, written: Sequence[Path] = ()) -> None:
    """The levels, the split per model, ratios, remarks, and what was written."""
    from triton_repo_builder.measure.bench.report import table

    server, machine = report.servers[0], report.machine
    where = f"{machine['cores']} cores of {machine['cpu']}"
    console.echo(f"{server['endpoint']} on tritonserver {server['version']}, {where}")
    for name, about in report.texts.items():
        console.echo(f"texts{f' of {name}' if len(report.texts) > 1 else ''}: {_about(about)}")
    _print(*table.level_table(report))
    _print(table.MODEL_HEADER, table.model_table(report))
    if report.ratios:
        console.echo(f"against {report.ratios[0].against} (above 1: more)")
        _print(table.RATIO_HEADER, table.ratio_table(report.ratios))
    if report.baseline:
        console.echo(f"against {report.baseline.file} (above 1: more)")
        _print(table.RATIO_HEADER, table.ratio_table(report.baseline.ratios))
    for line in [*table.remarks(report), *(report.baseline.notes if report.baseline else ())]:
        console.echo(f"note: {line}")
    if report.verdict and report.verdict.passed:
        share = f"{100 * report.verdict.max_regression:.4g} %"
        console.echo(
            f"passed: no throughput is lower, and no p99 higher, by more than {share} of the reference"
        )
    for path in written:
        console.echo(f"wrote {path}")


def _about(about: dict[str, Any]) -> str:
    if "median" not in about:
        return str(about["source"])
    return (
        f"{about['source']}, {about['texts']} of {about['shortest']} to {about['longest']} {about['unit']}, "
        f"median {about['median']}"
    )


def _print(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console.table(columns, rows, right={*columns} - LEFT, whole=LEFT)
