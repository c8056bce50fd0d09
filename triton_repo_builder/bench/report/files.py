"""The report in a folder: JSON, CSV, two plots and a page."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triton_repo_builder.bench.report import html, table
from triton_repo_builder.bench.report import png as report_png
from triton_repo_builder.bench.report.report import BenchReport
from triton_repo_builder.errors import TrbError
from triton_repo_builder.write import staging

NAMES = ("report.json", "report.csv", "throughput.png", "latency.png", "report.html")


def json_text(report: BenchReport) -> str:
    """The text of report.json."""
    return json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n"


def open_folder(folder: Path) -> None:
    """Make the folder and try it; raises ``TrbError`` before a run rather than after it."""
    report_png.require()
    with _staging(folder) as stage:
        (stage / NAMES[0]).touch()
        for file in (folder / name for name in NAMES):
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{file.name} is a folder there", str(file))


def write(report: BenchReport, folder: Path) -> tuple[Path, ...]:
    """Write report.json, report.csv, throughput.png, latency.png and report.html in place of older ones.

    Where they do not fit on the disk, with a ``TrbError``, none.
    """
    open_folder(folder)
    images = {"throughput": report_png.throughput(report), "latency": report_png.latency(report)}
    contents = {
        "report.json": json_text(report).encode(),
        "report.csv": table.csv_text(report).encode(),
        **{f"{name}.png": png for name, png in images.items()},
        "report.html": html.html(report, {name.capitalize(): png for name, png in images.items()}).encode(),
    }
    with _staging(folder) as stage:
        for name, content in contents.items():
            (stage / name).write_bytes(content)
        for name in NAMES:
            (stage / name).replace(folder / name)  # takes no room on the disk
    return tuple(folder / name for name in NAMES)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A folder inside ``folder``, where files can be made ready whatever lies beside it."""
    try:
        with staging.staging(folder / "report", kept="a report that was there before is as it was") as stage:
            yield stage
    except TrbError as error:
        raise TrbError(error.code, error.message, where=str(folder), remedy=error.remedy) from None
