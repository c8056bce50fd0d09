"""Result of a check, ready to be printed in any of the formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.finding import Finding

LONGEST_LINE = 200
"""Characters of a line that is shown."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The findings on some repositories."""

    findings: tuple[Finding, ...]
    models: int
    accepted: int = 0
    """Findings that the baseline accepts, which are not among these."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The text of each config.pbtxt by its path, to show the line of a finding."""
    colour: bool = False

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        files = {finding.file for finding in self.findings}
        return {path: text.split("\n") for path, text in self.texts.items() if path in files}

    @property
    def errors(self) -> int:
        """How many of the findings are errors."""
        return sum(finding.severity == "error" for finding in self.findings)

    def line(self, finding: Finding) -> str:
        """The line that a finding points to; empty if it is not known, or too long to show."""
        lines = self._lines.get(finding.file, []) if finding.line else []
        text = lines[finding.line - 1] if finding.line <= len(lines) and finding.line else ""
        return text if len(text) <= LONGEST_LINE else ""


def meaning(code: str) -> str:
    """General meaning of a code, or of any policy."""
    return CODES[code].meaning if code in CODES else "A policy of this repository."


def printable(text: str) -> str:
    """A text on one line, in characters that every terminal and file accepts."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in valid(text))


def valid(text: str) -> str:
    """A text that is UTF-8: bytes of a file's name that are not are shown as ``\\xff``."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
