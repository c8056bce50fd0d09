"""Text of config.pbtxt: parse errors, the likely intention, and comments that ignore nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Place
from triton_repo_builder.check.selection import closest, comments, unknown
from triton_repo_builder.repository import CONFIG, Model, pbtxt

_SHAPES: tuple[tuple[str, str, str], ...] = (
    (
        r"^(<<<<<<<|=======|>>>>>>>)",
        "a conflict of git that nobody resolved",
        "resolve the merge, then commit again",
    ),
    (
        r"\{\{|\{%|\{#",
        "a Jinja template that was not rendered",
        "render the template; the server reads plain text",
    ),
    (
        r"\$\{?[A-Za-z_]",
        "a placeholder that was not filled in",
        "fill the placeholder in (envsubst, your templates)",
    ),
    ("[\u2018\u2019\u201c\u201d\u00ab\u00bb]", "typographic quotes", 'write straight quotes: "'),
    ("\u00a0|[\u2000-\u200b]|\u3000", "a blank that is not ASCII", "write an ordinary blank in its place"),
)
"""Patterns of lines, with a name and remedy that tell more than the parser's message."""
_WHOLE: tuple[tuple[str, str, str], ...] = (
    ("\0", "UTF-16 text, or a binary file", "save it as UTF-8"),
    ("\ufeff", "a byte order mark (BOM) at its start", "save it as UTF-8 without BOM"),
)
_USUAL: tuple[tuple[str, str], ...] = (
    (r'^Enum type "inference.DataType" has no value named "TYPE_', "no quotes round enum values"),
    (r'^Enum type .* has no value named "', "no quotes round enum values"),
    (r'^Enum type "inference.DataType" has no value named (TYPE_)?(STR|STRING|BYTES)\.', "write TYPE_STRING"),
    (r'^Enum type "inference.DataType" has no value named (TYPE_)?(FLOAT|FLOAT32)\.', "write TYPE_FP32"),
    (r'^Enum type "inference.DataType" has no value named ((?:FP|BF|U?INT)\d+|BOOL)\.', r"write TYPE_\1"),
    (r'^Message type "inference.ModelParameter"', 'every parameter is text: value { string_value: "2" }'),
    (r"^Enum type .* has no value named [a-z]", "enum values are in capitals"),
    (r'^Expected "true" or "false"', "write true or false, without quotes"),
    (r"^Couldn't parse integer: [-+.\d]*[.eE]", "a whole number: no point, no exponent"),
    (r"^Couldn't parse integer: [\"']", "no quotes round numbers"),
    (r"^Couldn't parse integer: \]", "no comma after the last element of a list"),
    (r"^Couldn't parse integer: \$|got \$", "a placeholder was not filled in"),
    (r'^Expected "{"', "a message { … } belongs here: no bare value, and no comma after the last of a list"),
    (r'^Expected ","', "a comma between the elements of a list"),
    (r'^Expected ":"', "write field: value"),
    (r"^Need space between number", "a blank after the number; digits are not grouped"),
    (r"got: \+$", "no plus before a number"),
    (r"^Invalid escape", "write a backslash as \\\\"),
    (r"cannot cross line", "close the quote on its line; strings in a row are joined"),
    (r"^Expected string but found", "quotes round text"),
    (r"got /", "comments start with #"),
    (r"^Expected integer, got: -$", "0 or more, without a sign"),
    (r"should not have multiple", "keep one"),
    (r"another member of oneof \"scheduling_choice\"", "keep one scheduler per model"),
    (r"another member of oneof", "keep one of the two"),
    (r"^Value out of range", "the field's type does not hold this number: write a smaller one"),
)


def finding(model: Model) -> Finding:
    """The parse error of a model that has one, with line and column."""
    assert model.error is not None  # The caller has looked.
    if not model.error.line:  # not even read
        return report("file-unreadable", str(model.path), model.error.reason)
    reason = model.error.reason
    where = Place(model.path / CONFIG, model.error.line, model.error.column)
    name, remedy = _recognized(model.text or "", model.error.line)
    if name:
        return report("config-syntax", where, f"{reason}: this is {name}", remedy=remedy)
    return report("config-syntax", where, reason, remedy=_remedy(reason))


def check(context: ModelContext) -> Iterator[Finding]:
    """Comments that ignore a code without findings."""
    for entry in comments(context.document.text):
        if unknown([entry.code]):
            near = closest(entry.code)
            yield report(
                "ignore-unknown",
                Place(context.model.path / CONFIG, *context.document.place(entry.offset)),
                f"no finding has the code '{entry.code}'" + (f", did you mean {near}?" if near else ""),
            )


def _recognized(text: str, line: int) -> tuple[str, str]:
    """Name of the syntax on this line, and the remedy; empty if no pattern matches."""
    for mark, name, remedy in _WHOLE:
        if mark in text[:64]:
            return name, remedy
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return "", ""
    shown = re.sub(r'"(?:[^"\\]|\\.)*"|#.*', "", lines[line - 1][:1000])
    for pattern, name, remedy in _SHAPES:
        if re.search(pattern, shown):
            return name, remedy
    return "", ""


def _remedy(reason: str) -> str:
    for pattern, remedy in _USUAL:
        if match := re.search(pattern, reason):
            return match.expand(remedy) if "\\1" in remedy else remedy
    if match := re.match(r'Message type "inference\.(\w+)" has no field named "(\w+)"', reason):
        near = difflib.get_close_matches(match[2], pbtxt.fields(match[1]), 1)
        return f"did you mean {near[0]}?" if near else f"{match[1]} has: {', '.join(pbtxt.fields(match[1]))}"
    return ""
