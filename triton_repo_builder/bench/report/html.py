"""The report as one self-contained HTML page: no script, nothing fetched."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from triton_repo_builder.bench.report import table
from triton_repo_builder.bench.report.report import BenchReport

STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; margin: .5rem 0; display: block; overflow-x: auto }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap }
th { font-weight: 600 } th.text, td.text { text-align: left }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere }
img { max-width: 100%; background: #fff; border-radius: 4px }
ul { padding-left: 1.2rem }
"""
TEXT_COLUMNS = {"variant", "protocol", "load", "model", "level", "stable"}


def html(report: BenchReport, plots: Mapping[str, bytes]) -> str:
    """The page; ``plots`` are PNG images by their titles."""
    endpoints = ", ".join(dict.fromkeys(level.endpoint for level in report.levels))
    parts = [
        f"<h1>trb bench: {escape(endpoints)}</h1>",
        f"<p>{escape(report.started)}, {report.seconds:.0f} s<br><code>{escape(report.command)}</code></p>",
        *(_image(title, png) for title, png in plots.items()),
        "<h2>Levels</h2>",
        _table(*table.level_table(report)),
        "<p>Latencies count from when a request was due; failed requests are in none of them. rows/exec is "
        "that of the model with most compute time.</p>",
        *_ratios(report),
        "<h2>Where the time goes</h2>",
        _table(table.MODEL_HEADER, table.model_table(report)),
        "<p>Means per request in milliseconds, from the server's own statistics.</p>",
        *_list("Remarks", table.remarks(report)),
        "<h2>Run</h2>",
        _facts("server", [fact for server in report.servers for fact in server.items()]),
        _facts("machine", report.machine.items()),
        _facts("versions", report.versions.items()),
        _facts("texts", [fact for about in report.texts.values() for fact in about.items()]),
        _facts("options", report.options.items()),
    ]
    head = f'<meta charset="utf-8"><title>trb bench: {escape(endpoints)}</title><style>{STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _image(title: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return f'<h2>{escape(title)}</h2><img alt="{escape(title)}" src="data:image/png;base64,{data}">'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    classes = [' class="text"' if name in TEXT_COLUMNS else "" for name in header]

    def line(cells: Sequence[str], tag: str) -> str:
        parts = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, classes, strict=True))
        return f"<tr>{''.join(parts)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>"


def _ratios(report: BenchReport) -> Iterable[str]:
    if report.ratios:
        yield f"<h2>Against {escape(report.ratios[0].against)}</h2>"
        yield _table(table.RATIO_HEADER, table.ratio_table(report.ratios))
    if report.baseline:
        yield f"<h2>Against {escape(report.baseline.file)}</h2>"
        yield _table(table.RATIO_HEADER, table.ratio_table(report.baseline.ratios))
        yield from _list("", report.baseline.notes)


def _list(title: str, lines: Sequence[str]) -> Iterable[str]:
    if lines:
        yield f"<h2>{escape(title)}</h2>" if title else ""
        yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _facts(title: str, facts: Iterable[tuple[str, Any]]) -> str:
    rows = "".join(
        f'<tr><td class="text">{escape(name)}</td><td class="text">{escape(_plain(value))}</td></tr>'
        for name, value in facts
        if value not in (None, "", [], ())
    )
    return f"<h3>{escape(title)}</h3><table><tbody>{rows}</tbody></table>"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
