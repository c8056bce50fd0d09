"""JUnit's XML, which GitLab, Jenkins and others show: a test case a finding, warnings as skipped ones."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.result import Report, printable


def render(report: Report) -> str:
    """One suite; without findings it has one case, so that no reader takes it for a run that broke."""
    cases = [_case(finding) for finding in report.findings] or ['  <testcase classname="trb" name="check"/>']
    head = f'<testsuite name="trb check" tests="{len(cases)}" failures="{report.errors}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>"])


def _case(finding: Finding) -> str:
    kind = "failure" if finding.severity == "error" else "skipped"
    name = quoteattr(printable(f"{finding.code} at {finding.where}"))
    model = quoteattr(printable(finding.model or "repository"))
    message = quoteattr(printable(finding.message))
    remedy = escape(printable(f"fix: {finding.remedy}"))
    return f"  <testcase classname={model} name={name}><{kind} message={message}>{remedy}</{kind}></testcase>"
