"""Workflow commands of GitHub Actions: each finding annotates its line of a pull request."""

from __future__ import annotations

from triton_repo_builder.base.text import counted
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.result import Report, printable


def render(report: Report) -> str:
    """The commands, and a line for the log."""
    totals = f"{counted(report.models, 'model')} checked, {counted(len(report.findings), 'finding')}"
    return "\n".join([*map(_command, report.findings), totals])


def _command(finding: Finding) -> str:
    place = {"file": finding.file, "line": finding.line, "col": finding.column, "title": finding.code}
    stated = ",".join(f"{key}={_property(str(value))}" for key, value in place.items() if value)
    return f"::{finding.severity} {stated}::{_escaped(f'{finding.message} (fix: {finding.remedy})')}"


def _escaped(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
