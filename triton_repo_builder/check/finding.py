"""Findings of a check: data, shown all at once, each with a remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, or probably not meant."""

    severity: Severity
    code: str
    """Short and stable, e.g. ``version-missing``; docs/checks.md explains each."""
    where: str
    """A path, with ``:line`` or ``:line:column`` if known."""
    message: str
    """The server's own words if the server would refuse."""
    remedy: str
    model: str = ""
    """The model's name; empty for a finding on the repository."""
    file: str = ""
    """The path alone."""
    line: int = 0
    column: int = 0

    def found_in(self, root: Path, models: Collection[str]) -> Finding:
        """The finding with its place as fields of their own: names may hold colons."""
        file, line, column = _position(self.where)
        placed = replace(self, file=file, line=line, column=column)
        name = placed.entry(root)
        return replace(placed, model=name) if name in models else placed

    def entry(self, root: Path) -> str:
        """The entry at the top of the repository that its file is, or is in; empty for the whole."""
        prefix = below(root)
        return self.file.removeprefix(prefix).partition("/")[0] if self.file.startswith(prefix) else ""

    def __str__(self) -> str:
        return f"{self.where}: {self.severity}: {self.message} [{self.code}]\n  fix: {self.remedy}"

    def relative_to(self, root: Path, base: str = "") -> Finding:
        """The finding with paths below ``root`` stated from there, or as those below ``base``."""
        prefix, own = below(root), base.rstrip("/") or "."
        if prefix == base:
            return self

        def moved(path: str) -> str:
            if path == str(root):
                return own
            return base + path.removeprefix(prefix) if path.startswith(prefix) else path

        return replace(
            self,
            where=moved(self.where),
            file=moved(self.file),
            message=self.message.replace(prefix, base) if prefix else self.message,
            remedy=re.sub(rf"{re.escape(str(root))}(?!\S)", lambda _: own, self.remedy.replace(prefix, base))
            if prefix
            else self.remedy,
        )

    @property
    def order(self) -> tuple[object, ...]:
        """By file, then by line; findings without a line first."""
        path, line, column = (self.file, self.line, self.column) if self.file else _position(self.where)
        return path, line, column, self.severity, self.code, self.message


def below(root: Path) -> str:
    """What a path below ``root`` begins with: nothing for the current folder, whose name pathlib drops."""
    return str(root / "_")[:-1]


def _position(where: str) -> tuple[str, int, int]:
    if "://" in where:  # a server's URL, which ends in a port; no path has two slashes in a row
        return where, 0, 0
    match = re.fullmatch(r"(.*?)(?::(\d+))?(?::(\d+))?", where, re.DOTALL)
    assert match  # Every part is optional.
    return match[1], int(match[2] or 0), int(match[3] or 0)


def arrange(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted, each once."""
    return sorted(set(findings), key=lambda finding: finding.order)
