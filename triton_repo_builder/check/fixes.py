"""Corrections that have one safe form, as changed texts: a diff is shown before anything is written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from triton_repo_builder import files
from triton_repo_builder.check.finding import Finding

ROUNDS = 100
"""Each round corrects one place of a file: what a parser sees after it is only known then."""
Fix = tuple[str, str, str]
FIXES: dict[str, tuple[Fix, ...]] = {
    # code → (of the remedy, what stands at the place, what comes there); \\r is the remedy's group
    "backend-unknown": ((r'write backend: ("\w+")', r'backend\s*:\s*"[^"]*"', r"backend: \r"),),
    "config-syntax": (
        (r"write an ordinary blank", "[\u00a0\u2000-\u200b\u3000]", " "),
        (
            r"write straight quotes",
            '["\u201c\u201d\u201e\u00ab\u00bb]([^"\u201c\u201d\u00ab\u00bb\\n]*)[\u201c\u201d\u00ab\u00bb]',
            r'"\g<1>"',
        ),
        (r"without BOM", "\ufeff", ""),
        (r"write (TYPE_\w+)", r'"?\w+"?', r"\r"),
        (r"no quotes round enum values", r'"(\w+)"', r"\g<1>"),
        (r"no quotes round numbers", r'"(-?\d+)"', r"\g<1>"),
        (r"no plus before", r"\+", ""),
    ),
    "ensemble-step-version": ((r"write model_version: -1", r"[^{]*\{", r"\g<0> model_version: -1"),),
    "name-mismatch": ((r"make the two equal", r'name\s*:\s*("[^"]*"|\'[^\']*\')', ""),),
    "onnx-type": ((r"write data_type: (\w+)", r"data_type\s*:\s*\w+", r"data_type: \r"),),
    "parameter-ignored": ((r"did you mean ([\w.]+)\?", r'(?s)([^}]*?key\s*:\s*)"[^"]*"', r'\g<1>"\r"'),),
    "platform-backend-pair": ((r"drop platform", r'platform\s*:\s*"[^"]*"', ""),),
}


def corrected(text: str, finding: Finding) -> str:
    """The text with one finding corrected; the same text if it has no safe correction."""
    start = _offset(text, finding.line, finding.column)
    for remedy, pattern, replacement in FIXES.get(finding.code, ()):
        said = re.search(remedy, finding.remedy)
        stands = re.compile(pattern).match(text, start) if said and start is not None else None
        if said and stands:
            by = replacement.replace(r"\r", said[1] if said.re.groups else "")
            return text[: stands.start()] + stands.expand(by) + text[stands.end() :]
    return text


def correct(
    texts: Mapping[str, str], findings: Callable[[Mapping[str, str]], list[Finding]]
) -> dict[str, str]:
    """The texts by path once every safe correction is made; ``findings`` judges each round."""
    changed = dict(texts)
    for _ in range(ROUNDS):
        before = dict(changed)
        for finding in reversed(findings(changed)):  # from the end: places before it stay what they are
            if finding.file in changed:
                changed[finding.file] = corrected(changed[finding.file], finding)
        if changed == before:
            break
    return {path: text for path, text in changed.items() if text != texts[path]}


def diff(path: str, old: str, new: str) -> str:
    """A unified diff of one file."""
    lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    shown = path.removeprefix("/")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(*lines, f"a/{shown}", f"b/{shown}")
    )


def write(changed: Mapping[str, str]) -> None:
    """Put each text in the place of the file's."""
    for path, text in changed.items():
        files.write(Path(path), text.encode("utf-8"))


def _offset(text: str, line: int, column: int) -> int | None:
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return None
    return sum(len(before) + 1 for before in lines[: line - 1]) + max(column - 1, 0)
