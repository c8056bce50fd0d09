"""The report as JUnit XML, which CI systems display."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from triton_repo_builder.run.smoke.report import Check, SmokeReport, Status

_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def junit(report: SmokeReport) -> str:
    """One suite, one testcase per check; a check that could not be done is an error."""
    suite = ElementTree.Element(
        "testsuite",
        name="trb smoke",
        tests=str(len(report.checks)),
        failures=str(report.count(Status.FAILED)),
        errors=str(report.count(Status.UNVERIFIED)),
        skipped=str(report.count(Status.SKIPPED)),
        time=f"{sum(check.milliseconds for check in report.checks) / 1000:.3f}",
    )
    for check in report.checks:
        _testcase(suite, check)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _testcase(suite: ElementTree.Element, check: Check) -> None:
    where = ".".join(part.replace(".", "_") for part in (check.endpoint or "server", check.group) if part)
    name = f"{check.name} ({check.protocol})" if check.protocol else check.name
    case = ElementTree.SubElement(
        suite, "testcase", classname=_clean(where), name=_clean(name), time=f"{check.milliseconds / 1000:.3f}"
    )
    tag = {Status.FAILED: "failure", Status.UNVERIFIED: "error", Status.SKIPPED: "skipped"}.get(check.status)
    if tag:
        ElementTree.SubElement(case, tag, message=_clean(check.detail)).text = _clean(check.detail)
    elif check.detail:
        ElementTree.SubElement(case, "system-out").text = _clean(check.detail)


def _clean(text: str) -> str:
    """XML 1.0 has no way to write most control characters, and answers may hold them."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
