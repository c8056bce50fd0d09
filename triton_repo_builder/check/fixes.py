"""Corrections that have one safe form, as changed texts: a diff is shown before anything is written."""

from __future__ import annotations

import difflib
import re
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository.pbtxt_document import Document, Field

ROUNDS = 1000
"""Limit of rounds. Each corrects one place of a file, then parses the rest again."""
CHECKS = 2000
"""Limit of checks: each refused correction costs one."""
FIXES: dict[str, tuple[tuple[str, tuple[str, ...], str], ...]] = {
    # code → (part of the remedy, field at the place and one in it, new value); \1 is the remedy's group.
    # A message begins with the value; without a value the field is removed.
    "backend-unknown": ((r'write backend: ("\w+")', ("backend",), r"\1"),),
    "ensemble-step-version": (
        # The place is that of the version if one is stated; else that of the step.
        (r"^write model_version: -1", ("model_version",), "-1"),
        (r"^write model_version: -1", ("step",), " model_version: -1"),
    ),
    "name-mismatch": ((r"make the two equal", ("name",), ""),),
    "onnx-type": ((r"write data_type: (\w+)", ("data_type",), r"\1"),),
    "parameter-ignored": ((r"did you mean ([\w.]+)\?", ("parameters", "key"), r'"\1"'),),
    "platform-backend-pair": ((r"^drop platform", ("platform",), ""), (r"^drop backend", ("backend",), "")),
}
SYNTAX: tuple[tuple[str, str, str], ...] = (
    # part of the remedy, text at the place, new text; \r is the remedy's group
    (r"write an ordinary blank", "[\u00a0\u2000-\u200b\u3000]", " "),
    (
        r"write straight quotes",
        '["\u201c\u201d\u201e\u00ab\u00bb]([^"\u201c\u201d\u00ab\u00bb\\n]*)[\u201c\u201d\u00ab\u00bb]',
        r'"\g<1>"',
    ),
    (r"without BOM", "\ufeff", ""),
    (r"write (TYPE_\w+)", r'"?\w+"?', r"\r"),
    (r"no quotes round enum values", r"([\"'])(\w+)\1", r"\g<2>"),
    (r"no quotes round numbers", r"([\"'])(-?\d+)\1", r"\g<2>"),
    (r"no plus before", r"\+", ""),
)
"""Corrections of ``config-syntax``: a text that does not parse has no fields to place them."""
_SEPARATOR = re.compile(r"(?:[ \t]*[;,])?")
_HIDING = frozenset({"config-syntax", "backend-unknown", "platform-backend-pair"})
"""Findings that keep rules from running: correcting them reveals earlier errors."""
_WRONG_BACKEND = frozenset(
    {"backend-unknown", "model-file-missing", "platform-backend-pair", "platform-unknown"}
)
"""New findings which show that a correction chose another backend than the model's."""


_document = lru_cache(4)(Document)


def corrected(text: str, finding: Finding) -> str:
    """The text with one finding corrected; the same text if it has no safe correction."""
    document = _document(text)
    start = document.offset(finding.line, finding.column)
    if start is None:
        return text
    for remedy, pattern, replacement in SYNTAX if finding.code == "config-syntax" else ():
        said = re.search(remedy, finding.remedy)
        stands = re.compile(pattern).match(text, start) if said else None
        if said and stands:
            by = replacement.replace(r"\r", said[1] if said.re.groups else "")
            return text[: stands.start()] + stands.expand(by) + text[stands.end() :]
    for remedy, (name, *inner), value in FIXES.get(finding.code, ()):
        if said := re.search(remedy, finding.remedy):
            fields = [item for item in document.fields.all() if (item.start, item.name) == (start, name)]
            fields = [each for item in fields for each in (item.fields.each(*inner) if inner else [item])]
            if fields:
                return document.edited([_edit(document, fields[0], said.expand(value))])
    return text


def described(finding: Finding) -> str:
    """The effect of a correction, for a list of changes."""
    for remedy, path, value in FIXES.get(finding.code, ()):
        if not value and re.search(remedy, finding.remedy):
            return f"{path[-1]} removed"
    return finding.remedy


def _edit(document: Document, field: Field, value: str) -> tuple[int, int, str]:
    """Start, end and text of the edit that replaces a field or its value."""
    written = document.text[field.value_start : field.end]
    if written[:1] in ("{", "<"):
        return field.value_start + 1, field.value_start + 1, value
    if written not in (field.value, f'"{field.value}"', f"'{field.value}'"):
        return field.end, field.end, ""  # strings in a row, which the parser joins
    if value:
        return field.value_start, field.end, value
    separator = _SEPARATOR.match(document.text, field.end)
    end = separator.end() if separator else field.end
    line = document.text.rfind("\n", 0, field.start) + 1
    alone = document.text[line : field.start].isspace() or line == field.start
    return (line, end + 1, "") if alone and document.text[end : end + 1] == "\n" else (field.start, end, "")


def correct(
    texts: Mapping[str, str],
    findings: Callable[[Mapping[str, str]], list[Finding]],
    counts: Callable[[list[Finding]], list[Finding]] = list,
) -> dict[str, str]:
    """The texts by path after every safe correction.

    ``findings`` checks each result: a correction that causes a new finding is not made. ``counts`` leaves
    the findings that are to be corrected.
    """
    changed, refused, checks = dict(texts), set[tuple[str, str, str]](), 0
    before = findings(changed)
    for _ in range(ROUNDS):
        # From the end: places before it stay what they are.
        pending = [
            each for each in reversed(counts(before)) if each.file in changed and _key(each) not in refused
        ]
        pending = [each for each in pending if corrected(changed[each.file], each) != changed[each.file]]
        single = [[each] for each in pending]
        for batch in [pending, *single] if len(pending) > 1 else single:
            candidate = _applied(changed, batch)
            after, checks = findings(candidate), checks + 1
            if _harmless(batch, before, after):
                changed, before = candidate, after
                break
            if len(batch) == 1:
                refused.add(_key(batch[0]))
        if not pending or checks > CHECKS:
            break
    return {path: text for path, text in changed.items() if text != texts[path]}


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.code, finding.file, finding.message


def _applied(texts: Mapping[str, str], batch: Sequence[Finding]) -> dict[str, str]:
    changed = dict(texts)
    for finding in batch:
        changed[finding.file] = corrected(changed[finding.file], finding)
    return changed


def _harmless(batch: Sequence[Finding], before: Sequence[Finding], after: Sequence[Finding]) -> bool:
    """Whether corrections removed their findings and caused no other."""
    had, has = Counter(map(_key, before)), Counter(map(_key, after))
    hiding = any(finding.code in _HIDING for finding in batch)
    for finding in after:
        if finding.code == "config-syntax":  # The parser stops at the first: it must have come further.
            corrected_ones = [
                each for each in batch if (each.code, each.file) == (finding.code, finding.file)
            ]
            new = has[_key(finding)] > had[_key(finding)] or bool(corrected_ones)
            if new and not any(
                (finding.line, finding.column) >= (each.line, each.column) for each in corrected_ones
            ):
                return False
        elif has[_key(finding)] > had[_key(finding)] and (not hiding or finding.code in _WRONG_BACKEND):
            return False
    return all(has[_key(each)] < had[_key(each)] for each in batch if each.code != "config-syntax")


def exact(path: str) -> str:
    """The text of a file to the byte: its own line ends, and surrogates for bytes that are not UTF-8."""
    try:
        return files.read(Path(path)).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise files.unreadable(Path(path), error) from None


def diff(path: str, old: str, new: str) -> str:
    """A unified diff of one file, which ``patch --binary`` applies."""
    # A line ends with \n and nowhere else, whatever Python's splitlines takes for an end.
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    shown = path.removeprefix("/")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(before, after, f"a/{shown}", f"b/{shown}")
    )


def write(changed: Mapping[str, str]) -> None:
    """Replace the text of each file, or of the target of a link, and keep its mode.

    Raises ``TrbError`` for a link that leads out of the repository, before anything is written.
    """
    for path in changed:
        # MODEL/config.pbtxt: the repository is two folders above.
        if not Path(path).resolve().is_relative_to(Path(path).absolute().parents[1].resolve()):
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                f"a link to {Path(path).resolve()}, outside of the repository; nothing was written",
                where=path,
                remedy="correct that file itself, or put the file in the place of the link",
            )
    for path, text in changed.items():
        file = Path(path).resolve()
        mode = file.stat().st_mode
        files.write(file, text.encode("utf-8", "surrogateescape"))
        file.chmod(stat.S_IMODE(mode))
