"""The report in a folder, in every format."""

from __future__ import annotations

import errno
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.report import csv, html, json, png
from triton_repo_builder.measure.bench.report.report import BenchReport
from triton_repo_builder.repository.journal import staging


class Format(Protocol):
    """One way to write a report: a module of this package."""

    @property
    def FILES(self) -> tuple[str, ...]:
        """Names of the files it writes."""

    @property
    def NEEDS(self) -> str:
        """A library of the ``bench`` extra; empty if it needs none."""

    def render(self, report: BenchReport, earlier: Mapping[str, bytes]) -> dict[str, bytes]:
        """Files of this format by name; ``earlier`` has the files of the formats before it."""


FORMATS: dict[str, Format] = {"json": json, "csv": csv, "png": png, "html": html}


def names() -> tuple[str, ...]:
    """Every file of a report."""
    return tuple(name for report_format in FORMATS.values() for name in report_format.FILES)


def open_folder(folder: Path) -> None:
    """Create the folder and test writing to it; raises ``TrbError`` before a run rather than after it."""
    for library in {report_format.NEEDS for report_format in FORMATS.values() if report_format.NEEDS}:
        need(library, "--output")
    with _staging(folder) as stage:
        (stage / names()[0]).touch()
        for file in (folder / name for name in names()):
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{file.name} is a folder there", str(file))


def need(library: str, option: str) -> None:
    """Raise ``TrbError`` ENGINE_MISSING if the library of an option's plots is not installed."""
    if importlib.util.find_spec(library) is None:
        raise TrbError(
            Code.ENGINE_MISSING,
            f"plots need {library}, which is not installed",
            where=option,
            remedy=f'pip install "triton_repo_builder[bench]", or use --json without {option}',
        )


def write(report: BenchReport, folder: Path) -> tuple[Path, ...]:
    """Write every format over an older report; ``TrbError`` and no change if the disk is full."""
    open_folder(folder)
    contents: dict[str, bytes] = {}
    for report_format in FORMATS.values():
        contents |= report_format.render(report, contents)
    return place(folder, contents)


def place(folder: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Put files into a folder, all of them or, on a full disk, none. Raises ``TrbError``."""
    with _staging(folder) as stage:
        for name, content in contents.items():
            (stage / name).write_bytes(content)
        for name in contents:
            (stage / name).replace(folder / name)  # takes no room on the disk
    return tuple(folder / name for name in contents)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A folder inside ``folder``, in which files are made ready without touching what is beside it."""
    try:
        with staging.staging(
            folder / "report", how="with --output", kept="an earlier report is unchanged"
        ) as stage:
            yield stage
    except TrbError as error:
        raise TrbError(error.code, error.message, where=str(folder), remedy=error.remedy) from None
