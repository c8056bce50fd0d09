"""Which findings count: by code, by model, by a comment in config.pbtxt."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository import Repository

POLICY = "policy-"
"""What the codes of a team's own policies begin with."""
_STRING_OR_COMMENT = re.compile(r"""\"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#([^\n]*)""")
_IGNORE = re.compile(r"[ \t]*trb:[ \t]*ignore[ \t]+(.+)")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Codes, or patterns of codes (``onnx-*``), that are shown and that are not."""

    select: tuple[str, ...] = ("*",)
    ignore: tuple[str, ...] = ()
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pattern of model names → what is ignored in them."""

    def of(self, findings: Iterable[Finding], repository: Repository) -> list[Finding]:
        """The findings that are left."""
        commented = {model.name: _comments(model.text or "") for model in repository.models}
        return [finding for finding in findings if self._counts(finding, commented.get(finding.model, ()))]

    def _counts(self, finding: Finding, commented: Collection[str]) -> bool:
        ignored = (*self.ignore, *commented)
        for pattern, codes in self.models.items():
            if finding.model and fnmatchcase(finding.model, pattern):
                ignored = (*ignored, *codes)
        return _any(finding.code, self.select) and not _any(finding.code, ignored)


def unknown(patterns: Iterable[str]) -> list[str]:
    """The patterns that no code matches: misspelt ones, which would hide nothing, or everything."""
    return [
        pattern
        for pattern in patterns
        if not pattern.startswith(POLICY) and not any(fnmatchcase(code, pattern) for code in CODES)
    ]


def _any(code: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(code, pattern) for pattern in patterns)


def _comments(text: str) -> tuple[str, ...]:
    """The codes of each ``# trb: ignore CODE, CODE``, on a line of its own or behind a field."""
    if "trb:" not in text:
        return ()
    comments = (match[1] or "" for match in _STRING_OR_COMMENT.finditer(text))
    stated = filter(None, map(_IGNORE.match, comments))
    return tuple(code for match in stated for code in re.split(r"[\s,]+", match[1].strip()))
