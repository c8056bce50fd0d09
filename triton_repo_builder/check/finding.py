"""Findings of a check: data, shown all at once, each with a remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from triton_repo_builder.base import containment

UNREAD = "file-unreadable"
"""Code of a finding on a file that could not be read at all."""
Severity = Literal["error", "warning"]


class Place(str):
    """A path with the line and the column of the place behind it, if known: ``repo/bert/config.pbtxt:12:1``.

    The parts are also kept separately, since a folder's name may end like a line, ``1:2``.
    """

    file: str
    line: int
    column: int

    def __new__(cls, file: str | Path, line: int = 0, column: int = 0) -> Place:
        """The place of a file, a folder, or a server's URL."""
        numbers = [str(number) for number in (line, column) if number]
        place = super().__new__(cls, ":".join((str(file), *numbers)))
        place.file, place.line, place.column = str(file), line, column
        return place


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One error, or a setting that is probably not intended."""

    severity: Severity
    code: str
    """Short and stable, e.g. ``version-missing``; docs/checks.md explains each."""
    where: str
    """A path, with ``:line`` or ``:line:column`` if known."""
    message: str
    """The server's own message if the server would refuse the repository."""
    remedy: str
    model: str = ""
    """The model's name; empty for a finding on the repository."""
    file: str = ""
    """The path alone."""
    line: int = 0
    column: int = 0

    @classmethod
    def at(cls, place: Place, *, severity: Severity, code: str, message: str, remedy: str) -> Finding:
        """A finding at a place, whose parts become fields."""
        return cls(
            severity=severity,
            code=code,
            where=str(place),
            file=place.file,
            line=place.line,
            column=place.column,
            message=message,
            remedy=remedy,
        )

    def without_outside(self, root: Path) -> Finding:
        """The finding without the content of a file that a link reaches outside of the repository."""
        if not self.file or self.code == UNREAD or containment.is_within(root, Path(self.file)):
            return self
        return replace(
            self,
            where=self.file,
            message="what this leads to, out of the repository, is wrong: its content is not shown",
            remedy="put a copy there and check again",
            line=0,
            column=0,
        )

    def found_in(self, root: Path, models: Collection[str]) -> Finding:
        """The finding with the model that its file belongs to."""
        name = self.entry(root)
        return replace(self, model=name) if name in models else self

    def entry(self, root: Path) -> str:
        """Top-level entry of the repository with its file; empty for the repository itself."""
        prefix = below(root)
        return self.file.removeprefix(prefix).partition("/")[0] if self.file.startswith(prefix) else ""

    def __str__(self) -> str:
        return f"{self.where}: {self.severity}: {self.message} [{self.code}]\n  fix: {self.remedy}"

    def relative_to(self, root: Path, base: str = "") -> Finding:
        """The finding with paths below ``root`` stated from there, or as those below ``base``."""
        prefix, folder = below(root), base.rstrip("/") or "."
        if prefix == base:
            return self

        def moved(path: str) -> str:
            if path == str(root):
                return folder
            return base + path.removeprefix(prefix) if path.startswith(prefix) else path

        return replace(
            self,
            where=moved(self.where),
            file=moved(self.file),
            message=self.message.replace(prefix, base) if prefix else self.message,
            remedy=re.sub(
                rf"{re.escape(str(root))}(?!\S)", lambda _: folder, self.remedy.replace(prefix, base)
            )
            if prefix
            else self.remedy,
        )

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: by file, then by line; findings without a line first.

        An edit is a file's last finding: the others say what it broke.
        """
        edited = self.code == "manifest-changed"
        return self.file, edited, self.line, self.column, self.severity, self.code, self.message


def below(root: Path) -> str:
    """Prefix of paths below ``root``: empty for the current folder, whose name pathlib drops."""
    return str(root / "_")[:-1]


def arrange(findings: Iterable[Finding]) -> list[Finding]:
    """Findings sorted, without duplicates."""
    return sorted(set(findings), key=lambda finding: finding.order)
