"""The results as docs/tasks.md: which architecture serves which task, and how far the numbers are off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conformance.architectures import ARCHITECTURES, TOKENIZER_ROWS
from conformance.compare import TOLERANCE
from conformance.serve import FAIL, PASS, PENDING, REFUSED, Result
from conformance.tasks import TASKS, VARIED

_INTRO = """# Tasks

Written by `make conformance`; do not edit. Each cell is a really exported model, built with `trb build`,
served on a real tritonserver, and asked at least 50 inputs: many languages, lengths and hostile strings
(empty, emoji, NUL, combining accents, right-to-left, thousands of words, only punctuation), each alone
while others run, and again as a row of a larger request. Every answer is compared with that of
`transformers` in PyTorch on the original model: labels, answers, entities, token ids and positions must
be the same for every input, numbers within {tolerance:g}. Where transformers refuses an input (an empty
context, say), the server must too.

Weights are random, at a small size but with the real structure; MiniLM is the real model.

    {command}

{versions}

{counts}

A cell shows how many answers are right and the largest difference of a number. **FAIL** and *refused*
(by trb build, as it has to be) have their reasons below, *pending* is a task that `trb` does not have
yet, – no such combination.
"""


def write(results: Sequence[Result], versions: Sequence[str], command: str) -> str:
    """The whole page."""
    states = (PASS, FAIL, REFUSED, PENDING)
    total = {state: sum(result.state == state for result in results) for state in states}
    asked = sum(result.asked for result in results)
    counts = (
        f"{len(results)} cells: {total[PASS]} pass, {total[FAIL]} fail, {total[REFUSED]} refused, "
        f"{total[PENDING]} pending; "
        f"{asked:,} inputs compared."
    )
    page = _INTRO.format(
        tolerance=TOLERANCE, command=command, versions="Versions: " + ", ".join(versions) + ".", counts=counts
    )
    page += "".join(_tables(results))
    page += _reasons("Cells that fail", [result for result in results if result.state == FAIL])
    page += _reasons("Cells that are refused", [result for result in results if result.state == REFUSED])
    page += _reasons("Pending", [result for result in results if result.state == PENDING])
    return page


def _tables(results: Sequence[Result]) -> list[str]:
    varied = {name for name, task in TASKS.items() if task.only == VARIED}
    images = {name for name, task in TASKS.items() if task.images}
    sounds = {name for name, task in TASKS.items() if "AUDIO" in task.fields}
    text = [row for row in ARCHITECTURES.values() if row.family]
    models = [row.name for row in text if row.name not in TOKENIZER_ROWS]

    def part(title: str, rows: Sequence[str], wanted: Callable[[str], bool]) -> str:
        columns = [name for name in TASKS if wanted(name)]
        return _table(title, rows, columns, results)

    pictures = [row.name for row in ARCHITECTURES.values() if row.processor]
    return [
        part("Text", models, lambda name: name not in varied | images),
        part("Poolings, aggregations, options", VARIED, lambda name: name in varied),
        part("Images", pictures, lambda name: name in images - sounds),
        part("Audio", pictures, lambda name: name in sounds),
        part("Tokenizers", TOKENIZER_ROWS, lambda name: name not in varied | images),
    ]


def _table(title: str, rows: Sequence[str], columns: Sequence[str], results: Sequence[Result]) -> str:
    """Tasks down, architectures across where there are fewer of those; empty columns are left out."""
    found = {(result.cell.row.name, result.cell.task.name): result for result in results}
    rows = [row for row in rows if any((row, column) in found for column in columns)]
    columns = [column for column in columns if any((row, column) in found for row in rows)]
    if not rows:
        return ""
    lines = [f"\n## {title}\n", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        cells = [_cell(found.get((row, column))) for column in columns]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(result: Result | None) -> str:
    if result is None:
        return "–"
    if result.state in (PENDING, REFUSED):
        return f"*{result.state}*"
    if not result.asked:
        return "**FAIL**"
    count = f"{result.same}/{result.asked}"
    shown = f"{count}, {result.difference:.0e}" if result.difference else count
    return shown if result.state == PASS else f"**FAIL** {shown}"


def _reasons(title: str, results: Sequence[Result]) -> str:
    if not results:
        return ""
    if title == "Pending":
        reasons = sorted({result.reason for result in results})
        return f"\n## {title}\n\n" + "".join(f"- {reason}\n" for reason in reasons)
    lines = [f"- {result.cell}: {_plain(result.reason)}\n" for result in results]
    return f"\n## {title}\n\n" + "".join(lines)


def _plain(reason: str) -> str:
    """One line of Markdown, whatever bytes the texts had."""
    text = reason.encode("unicode_escape", "replace").decode() if not reason.isprintable() else reason
    return f"`{text.replace('`', chr(39))[:300]}`"
