"""The report in a folder: JSON, CSV, two plots and a page."""

from __future__ import annotations

import json
from pathlib import Path

from triton_repo_builder.bench import page, plots, table
from triton_repo_builder.bench.report import BenchReport
from triton_repo_builder.errors import Exit, TrbError


def json_text(report: BenchReport) -> str:
    """The text of report.json."""
    return json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n"


def open_folder(folder: Path) -> None:
    """Make the folder and try it; raises ``TrbError`` before a run rather than after it."""
    plots.require()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".trb-bench"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _unwritable(folder, error) from None


def write(report: BenchReport, folder: Path) -> tuple[Path, ...]:
    """Write report.json, report.csv, throughput.png, latency.png and report.html over older ones."""
    open_folder(folder)
    images = {"throughput": plots.throughput(report), "latency": plots.latency(report)}
    contents = {
        "report.json": json_text(report).encode(),
        "report.csv": table.csv_text(report).encode(),
        **{f"{name}.png": png for name, png in images.items()},
        "report.html": page.html(report, {name.capitalize(): png for name, png in images.items()}).encode(),
    }
    try:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return tuple(folder / name for name in contents)


def _unwritable(folder: Path, error: OSError) -> TrbError:
    return TrbError(
        Exit.OUTPUT_NOT_WRITABLE,
        f"cannot be written: {error.strerror}",
        where=str(folder),
        remedy="name a folder that is writable with --output",
    )
