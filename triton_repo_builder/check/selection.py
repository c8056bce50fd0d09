"""Selection of findings: by code, by model, by a comment in config.pbtxt."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository import Repository
from triton_repo_builder.repository.pbtxt_document import tokens

POLICY = "policy-"
"""Prefix of the codes of a team's own policies."""
_IGNORE = re.compile(r"#[ \t]*trb:[ \t]*ignore(?:[ \t]+|:)(.+)")
_REASON = re.compile(r":(?=\s|$)|\s--?(?=\s)|[(;#]")
"""Separators between the codes of a comment and the reason."""
_WORD = re.compile(r"(,?)[ \t]*([^\s,]+)")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Codes, or patterns of codes (``onnx-*``), to show and to ignore."""

    select: tuple[str, ...] = ("*",)
    ignore: tuple[str, ...] = ()
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pattern of model names → codes that are ignored in them."""

    def of(self, findings: Iterable[Finding], repository: Repository) -> list[Finding]:
        """The findings that are left."""
        commented = {
            model.name: [entry.code for entry in comments(model.text or "")] for model in repository.models
        }
        return [finding for finding in findings if self._counts(finding, commented.get(finding.model, ()))]

    def _counts(self, finding: Finding, commented: Collection[str]) -> bool:
        ignored = (*self.ignore, *commented)
        for pattern, codes in self.models.items():
            if finding.model and fnmatchcase(finding.model, pattern):
                ignored = (*ignored, *codes)
        return _any(finding.code, self.select) and not _any(finding.code, ignored)


def unknown(patterns: Iterable[str]) -> list[str]:
    """Patterns that no code matches: misspelt ones would hide nothing, or everything."""
    return [
        pattern
        for pattern in patterns
        if not pattern.startswith(POLICY) and not any(fnmatchcase(code, pattern) for code in CODES)
    ]


def _any(code: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(code, pattern) for pattern in patterns)


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """A code, or a pattern of codes, in a comment ``# trb: ignore CODE, CODE: reason``."""

    code: str
    offset: int
    """Characters before it in the text."""


def comments(text: str) -> list[Ignored]:
    """The codes of each such comment, on a line of its own or behind a field; misspelt ones, too.

    They are separated by commas or blanks. A reason follows a colon, a dash or a bracket; without one it
    begins at the first word that is not a code, nor close to one, nor the first after a comma.
    """
    codes: list[Ignored] = []
    for token in tokens(text) if "trb:" in text else ():
        stated = _IGNORE.match(token.text)
        if not stated:
            continue
        start = token.start + stated.start(1)
        for number, word in enumerate(_WORD.finditer(_REASON.split(stated[1], 1)[0])):
            code = word[2].rstrip(".")
            due = number == 0 or bool(word[1])
            if not due and unknown([code]) and not closest(code):
                break
            codes.append(Ignored(code=code, offset=start + word.start(2)))
    return codes


def closest(code: str) -> str:
    """The code that a misspelt one probably means; empty if none is near."""
    return next(iter(difflib.get_close_matches(code, CODES, 1, 0.8)), "")
