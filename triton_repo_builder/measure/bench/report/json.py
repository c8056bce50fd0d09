"""The report for programs; docs/bench.md describes the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping

from triton_repo_builder.measure.bench.report.report import BenchReport

FILES = ("report.json",)
NEEDS = ""


def text(report: BenchReport) -> str:
    """The text of report.json."""
    return json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n"


def render(report: BenchReport, earlier: Mapping[str, bytes]) -> dict[str, bytes]:
    """The file that ``--baseline`` reads."""
    return {FILES[0]: text(report).encode()}
