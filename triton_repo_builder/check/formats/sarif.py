"""SARIF 2.1.0, which GitHub's code scanning and most editors read."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from triton_repo_builder import __version__
from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.result import Report, meaning, printable

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(report: Report) -> str:
    """One run; paths are relative where the repository was named so."""
    codes = sorted({finding.code for finding in report.findings})
    driver = {"name": "trb check", "version": __version__, "rules": [_rule(code) for code in codes]}
    place = {code: index for index, code in enumerate(codes)}
    results = [_result(finding, place[finding.code]) for finding in report.findings]
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=1)


def _rule(code: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": code, "shortDescription": {"text": meaning(code)}}
    if code in CODES:
        rule["help"] = {"text": CODES[code].remedy}
    return rule


def _result(finding: Finding, index: int) -> dict[str, Any]:
    region = {"startLine": finding.line, "startColumn": max(finding.column, 1)} if finding.line else {}
    uri = quote(finding.file.encode("utf-8", "surrogateescape"), safe="/")
    place: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{printable(finding.message)}\nfix: {printable(finding.remedy)}"},
        "locations": [{"physicalLocation": {**place, "region": region} if region else place}],
    }
