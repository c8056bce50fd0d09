"""A JSON list with one object a finding."""

from __future__ import annotations

import json
from dataclasses import asdict

from triton_repo_builder.check.result import Report, valid


def render(report: Report) -> str:
    """Names that are not UTF-8 are escaped, so that the document is always valid."""
    return json.dumps([_valid(asdict(finding)) for finding in report.findings], indent=1)


def _valid(entry: dict[str, object]) -> dict[str, object]:
    return {key: valid(value) if isinstance(value, str) else value for key, value in entry.items()}
