"""The report as one self-contained HTML page: no script, nothing fetched."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from triton_repo_builder.base import templates
from triton_repo_builder.measure.bench.report import png, regression, table
from triton_repo_builder.measure.bench.report.report import BenchReport

FILES = ("report.html",)
NEEDS = png.NEEDS


def render(report: BenchReport, earlier: Mapping[str, bytes]) -> dict[str, bytes]:
    """The page, with the plots of ``png`` in it."""
    page = templates.render(
        "bench_report.html.jinja",
        report=report,
        endpoints=", ".join(dict.fromkeys(level.endpoint for level in report.levels)),
        plots=[
            (name.removesuffix(".png").capitalize(), base64.b64encode(earlier[name]).decode())
            for name in png.FILES
        ],
        levels=table.level_table(report),
        ratio_header=table.RATIO_HEADER,
        ratios=table.ratio_table(report.ratios),
        baseline_ratios=table.ratio_table(report.baseline.ratios if report.baseline else ()),
        models=(table.MODEL_HEADER, table.model_table(report)),
        remarks=[*table.remarks(report), *(regression.lines(report.verdict) if report.verdict else ())],
        run=[
            ("server", [fact for server in report.servers for fact in server.items()]),
            ("machine", report.machine.items()),
            ("versions", report.versions.items()),
            ("texts", [fact for about in report.texts.values() for fact in about.items()]),
            ("options", report.options.items()),
        ],
    )
    return {FILES[0]: page.encode()}
