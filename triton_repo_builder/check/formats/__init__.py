"""Formats of a report: a module for each, and its entry here."""

from __future__ import annotations

from typing import Protocol

from triton_repo_builder.check.formats import github, json_list, junit, sarif, text
from triton_repo_builder.check.result import Report


class Format(Protocol):
    """One way to write a report."""

    def __call__(self, report: Report, /) -> str:
        """The whole text, without a line break at its end."""


FORMATS: dict[str, Format] = {
    "text": text.render,
    "json": json_list.render,
    "sarif": sarif.render,
    "github": github.render,
    "junit": junit.render,
}
