"""A block for each finding: file:line first for editors and grep, the line, a caret under the place."""

from __future__ import annotations

from triton_repo_builder.base.text import counted
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.result import Report, printable

STYLES = {"error": "1;31", "warning": "1;33", "place": "1", "code": "2", "fix": "32", "caret": "1;32"}
"""ANSI color numbers."""


def render(report: Report) -> str:
    """Report for a person; in colour on a terminal."""
    accepted = f"; {counted(report.accepted, 'finding')} of the baseline not shown" if report.accepted else ""
    checked = f"{counted(report.models, 'model')} checked"
    if not report.findings:
        return f"{checked}, no findings{accepted}"
    blocks = [line for finding in report.findings for line in _block(report, finding)]
    warnings = len(report.findings) - report.errors
    totals = f"{counted(report.errors, 'error')}, {counted(warnings, 'warning')}"
    return "\n".join([*blocks, f"{checked}: {totals}{accepted}"])


def _block(report: Report, finding: Finding) -> list[str]:
    def styled(text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if report.colour else text

    where = styled(printable(finding.where), "place")
    severity = styled(finding.severity, finding.severity)
    lines = [f"{where}: {severity}: {printable(finding.message)} {styled(f'[{finding.code}]', 'code')}"]
    if shown := report.line(finding):
        lines.append(f"    {printable(shown.expandtabs(1))}")
        lines.append(f"    {' ' * max(finding.column - 1, 0)}{styled('^', 'caret')}")
    return [*lines, f"  {styled('fix:', 'fix')} {printable(finding.remedy)}"]
