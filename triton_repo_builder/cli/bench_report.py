"""A bench report on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from triton_repo_builder.bench import BenchReport

LEFT = {"variant", "protocol", "load", "length", "model", "level", "stable"}


def print_report(report: BenchReport, written: Sequence[Path] = ()) -> None:
    """The levels, the split per model, ratios, remarks, and what was written."""
    from triton_repo_builder.bench.report import table
    from triton_repo_builder.cli import console as cli_console

    console = cli_console.console()
    server, machine = report.servers[0], report.machine
    where = f"{machine['cores']} cores of {machine['cpu']}"
    click.echo(f"{server['endpoint']} on tritonserver {server['version']}, {where}")
    for name, about in report.texts.items():
        click.echo(f"texts{f' of {name}' if name else ''}: {_about(about)}")
    _print(console, *table.level_table(report))
    _print(console, table.MODEL_HEADER, table.model_table(report))
    if report.ratios:
        click.echo(f"against {report.ratios[0].against} (above 1: more)")
        _print(console, table.RATIO_HEADER, table.ratio_table(report.ratios))
    if report.baseline:
        click.echo(f"against {report.baseline.file} (above 1: more)")
        _print(console, table.RATIO_HEADER, table.ratio_table(report.baseline.ratios))
    for line in [*table.remarks(report), *(report.baseline.notes if report.baseline else ())]:
        click.echo(f"note: {line}")
    for path in written:
        click.echo(f"wrote {path}")


def _about(about: dict[str, Any]) -> str:
    if "median" not in about:
        return str(about["source"])
    return (
        f"{about['source']}, {about['texts']} of {about['shortest']} to {about['longest']} {about['unit']}, "
        f"median {about['median']}"
    )


def _print(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        shown.add_column(name, justify="left" if name in LEFT else "right", no_wrap=name in LEFT)
    for row in rows:
        shown.add_row(*map(Text, row))
    console.print(shown)
