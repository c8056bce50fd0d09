"""Change fields of a config.pbtxt in its text: every other line stays as it is, comments included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.pbtxt_document import Document

WRITTEN = "# Written by trb."
Raw = Mapping[str, Any]


def change(text: str, new: Raw, reason: str) -> str:
    """The text with the fields of ``new`` where they differ, each under the reason as a comment.

    Raises ``PbtxtError`` for a text that does not parse, and ``ValueError`` for one that cannot be edited so.
    """
    old = pbtxt.parse(text)
    target = pbtxt.plain(new)
    edited = text
    for field in (field for field in {**old, **target} if old.get(field) != target.get(field)):
        if field == "parameters":
            edited = _parameters(edited, old.get(field, {}), target.get(field, {}), reason)
        else:
            value = {field: target[field]} if field in target else {}
            edited = _replace(edited, field, "", value, reason)
    if pbtxt.parse(edited) != target:
        raise ValueError("the edited text does not say what it should")
    return edited


def _parameters(text: str, old: Raw, new: Raw, reason: str) -> str:
    for key in (key for key in new if old.get(key) != new[key]):
        text = _replace(text, "parameters", key, {"parameters": {key: new[key]}}, reason)
    return text


def _replace(text: str, field: str, key: str, value: Raw, reason: str) -> str:
    """Replace every statement of a field, of ``parameters`` the one with this key; or add it at the end."""
    document = Document(text)
    lines = [f"# {reason}", *(line for _, line in pbtxt.elements(value))]
    if not value:
        lines[0] = f"# no {field}: {reason}"
    written = "\n".join(lines) + "\n"
    edits = [(start, document.line_end(end), "") for start, end in document.statements(field, key)]
    if not edits:
        return text + ("" if text.endswith("\n") or not text else "\n") + written
    start, end, _ = edits[0]
    edits[0] = (_reason_begin(text, start) if WRITTEN in text else start, end, written)
    return document.edited(edits)


def _reason_begin(text: str, begin: int) -> int:
    """Start of the comment directly above: in a file of trb it is the reason for the replaced value."""
    start = begin
    while start > 0:
        before = text.rfind("\n", 0, start - 1) + 1
        line = text[before : start - 1]
        if not line.startswith("#") or line.startswith(WRITTEN):
            break
        start = before
    return start
