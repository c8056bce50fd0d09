"""File of accepted findings, so that only new findings fail."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import load_json
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.result import valid

KEY = "findings"
Accepted = Counter[tuple[str, str, str]]


def render(findings: Sequence[Finding]) -> str:
    """Text of the file: an entry for each finding, without line numbers, which change."""
    entries = sorted(_key(finding) for finding in findings)
    listed = [{"file": file, "code": code, "message": message} for file, code, message in entries]
    return json.dumps({KEY: listed}, indent=1) + "\n"


def read(path: Path) -> Accepted:
    """How often each finding is accepted. Raises USAGE for a file that is not a baseline."""
    try:
        entries = load_json(files.read_text(path))[KEY]
        return Counter((str(item["file"]), str(item["code"]), str(item["message"])) for item in entries)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrbError(
            Code.USAGE,
            f"not a baseline: {type(error).__name__}: {error}",
            where=str(path),
            remedy=f"write it with: trb check --write-baseline {path}",
        ) from None


def new(findings: Sequence[Finding], accepted: Accepted, root: Path, base: str = "") -> list[Finding]:
    """The findings that the baseline does not accept. It accepts equal findings up to their count.

    With several repositories ``base`` tells them apart: two may have a model of the same name.
    """
    left = accepted.copy()
    fresh = []
    for finding in findings:
        key = _key(finding.relative_to(root, base))
        if left[key] > 0:
            left[key] -= 1
        else:
            fresh.append(finding)
    return fresh


def _key(finding: Finding) -> tuple[str, str, str]:
    return valid(finding.file), finding.code, valid(finding.message)
