"""JUnit XML: a test case a finding, warnings as skipped ones."""

from __future__ import annotations

from triton_repo_builder.base.junit import JUnitCase, document
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.result import Report, printable


def render(report: Report) -> str:
    """One suite; without findings it has one case, so that no reader takes it for a failed run."""
    cases = [_case(finding) for finding in report.findings] or [JUnitCase(classname="trb", name="check")]
    return document("trb check", cases).rstrip("\n")


def _case(finding: Finding) -> JUnitCase:
    return JUnitCase(
        classname=printable(finding.model or "repository"),
        name=printable(f"{finding.code} at {finding.where}"),
        outcome="failure" if finding.severity == "error" else "skipped",
        message=printable(finding.message),
        text=printable(f"fix: {finding.remedy}"),
    )
