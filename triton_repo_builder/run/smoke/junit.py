"""JUnit XML: a test case a check; a check that could not be done is an error."""

from __future__ import annotations

from triton_repo_builder.base.junit import JUnitCase, Outcome, document
from triton_repo_builder.run.smoke.report import Check, SmokeReport, Status

_OUTCOMES: dict[Status, Outcome] = {
    Status.PASSED: "system-out",
    Status.FAILED: "failure",
    Status.UNVERIFIED: "error",
    Status.SKIPPED: "skipped",
}


def junit(report: SmokeReport) -> str:
    """An XML document of one suite."""
    return document("trb smoke", [_case(check) for check in report.checks])


def _case(check: Check) -> JUnitCase:
    where = (check.endpoint or "server", check.group)
    return JUnitCase(
        classname=".".join(part.replace(".", "_") for part in where if part),
        name=f"{check.name} ({check.protocol})" if check.protocol else check.name,
        outcome=_OUTCOMES[check.status],
        message="" if check.status is Status.PASSED else check.detail,
        text=check.detail,
        seconds=check.milliseconds / 1000,
    )
