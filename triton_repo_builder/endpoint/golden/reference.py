"""The reference distribution of a text endpoint: the user's texts (``--reference``), else the golden cases.

Tokens are counted and texts answered as for golden cases: by transformers' tokenizer and the untouched model.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from triton_repo_builder.base import files, user_file
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import text
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.golden.text import TokenizerSettings
from triton_repo_builder.endpoint.tasks.support.examples import SINGLE, of_lines
from triton_repo_builder.endpoint.tasks.task import Example, TaskPlan
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import reference
from triton_repo_builder.repository.cases import CaseFile
from triton_repo_builder.repository.reference import (
    ANSWERS,
    CONFIDENCE,
    TEXT_TOKENS,
    UNKNOWN_TOKENS,
    Distribution,
    Reference,
)

GOLDEN = "golden cases"
OPTION = "--reference"
MOST_TOKENIZED, MOST_ANSWERED = 2000, 500
"""Texts of a file that are tokenized and answered, evenly spread over it."""
COLUMN = "text"
"""Column of a .csv, and field of a line of .jsonl, that has the text."""
FIRST_LABELS = ("label", "labels")
"""Outputs whose first value is the best label."""
FIRST_SCORES = ("score", "scores")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The endpoint whose texts are measured."""

    source: Source
    task: TaskPlan
    settings: TokenizerSettings


def of_file(file: Path, measured: Measured, model: OriginalModel | None) -> Reference:
    """Distributions of a user's texts; without a model only of their tokens. Raises ``TrbError``."""
    lines = texts(file)
    examples = of_lines(measured.task, lines, OPTION)
    tokens = _tokens(measured, spread(examples, MOST_TOKENIZED))
    if not tokens:
        raise TrbError(
            Code.USAGE,
            "none of its texts fits into the tokens that the model takes",
            where=str(file),
            remedy="give shorter texts",
        )
    answers: list[tuple[str, float]] = []
    # Plain lines have no labels of their own for a task that takes them.
    labelled = not any(field.several for field in measured.task.texts) or lines[0].startswith("{")
    if model is not None and labelled and _classifies(measured.task):
        answers = _answers(measured, model, spread(examples, MOST_ANSWERED))
    return Reference(source=file.name, distributions={**tokens, **_of_answers(measured.task, answers)})


def of_cases(cases: CaseFile | None, measured: Measured) -> Reference | None:
    """Distributions of the golden cases' texts, and of their answers if these were recorded.

    None if no case fits into the tokens that the model takes.
    """
    examples = [example for _, example in measured.task.examples or SINGLE]
    tokens = _tokens(measured, examples)
    if not tokens:
        return None
    recorded = (
        {output.name: output.data for output in case.outputs} for case in (cases.cases if cases else ())
    )
    answers = [answer for answer in map(_best, recorded) if answer] if _classifies(measured.task) else []
    return Reference(source=GOLDEN, distributions={**tokens, **_of_answers(measured.task, answers)})


def texts(file: Path) -> tuple[str, ...]:
    """Texts of a .csv (its column ``text``) or .jsonl (the field ``text``), else a text a line.

    A line of .jsonl may also be an object of the endpoint's inputs. Raises ``TrbError``.
    """
    if file.suffix.lower() == ".csv":
        return _column(file)
    lines = user_file.lines(file)
    if file.suffix.lower() != ".jsonl":
        return lines
    return tuple(_field(file, number, line) for number, line in enumerate(lines, 1))


def _column(file: Path) -> tuple[str, ...]:
    reader = csv.DictReader(io.StringIO(user_file.content(file)))
    try:
        if COLUMN not in (reader.fieldnames or ()):
            raise TrbError(
                Code.USAGE,
                f"has no column '{COLUMN}'",
                where=str(file),
                remedy=f"name the column of the texts '{COLUMN}' in the first line",
            )
        values = tuple(text.strip() for row in reader if (text := row[COLUMN] or "").strip())
    except csv.Error as error:
        raise TrbError(
            Code.USAGE,
            f"line {reader.line_num} is not CSV: {error}",
            where=str(file),
            remedy="write it with a CSV library, or one text per line as .txt",
        ) from None
    if not values:
        raise TrbError(Code.USAGE, "holds no text", where=str(file), remedy="write one text per row")
    return values


def _field(file: Path, number: int, line: str) -> str:
    """The text of a line of .jsonl; an object of the endpoint's inputs stays as it is."""
    try:
        document = files.load_json(line)
    except ValueError:
        document = None
    if isinstance(document, dict):
        value = document.get(COLUMN)
        if isinstance(value, str) and value.strip():
            return value
        if COLUMN not in document and any(str(name).isupper() for name in document):
            return line
    raise TrbError(
        Code.USAGE,
        f"line {number} is not a JSON object with a text",
        where=str(file),
        remedy=f'write lines such as {{"{COLUMN}": "…"}}',
    )


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, evenly spread."""
    count = min(len(items), most)
    return [items[number * len(items) // count] for number in range(count)]


def _tokens(measured: Measured, examples: Iterable[Example]) -> dict[str, Distribution]:
    """Tokens of each text, and the share of the unknown ones; empty if none can be encoded."""
    library, limit = text.library(measured.source), measured.settings.max_length
    lengths: list[int] = []
    unknown, unknown_id = 0, measured.source.tokenizer_spec.unknown_id
    for example in examples:
        encoded = text.encoded(measured.task, library, text.short(measured.task, example, limit), limit)
        rows = [row["input_ids"] for row in encoded or ()]
        counts = [len(row) for row in rows]
        # The server counts the pieces of a long text as one text, too.
        lengths += [sum(counts)] if measured.task.encoding.strided and counts else counts
        unknown += sum(row.count(unknown_id) for row in rows)
    if not lengths:
        return {}
    share = round(unknown / (sum(lengths) or 1), reference.DIGITS)
    shares = {reference.UNKNOWN: share, reference.KNOWN: round(1 - share, reference.DIGITS)}
    return {
        TEXT_TOKENS: Distribution(texts=len(lengths), shares=reference.histogram(TEXT_TOKENS, lengths)),
        UNKNOWN_TOKENS: Distribution(texts=len(lengths), shares=shares),
    }


def _classifies(task: TaskPlan) -> bool:
    """Whether an answer has labels with scores."""
    names = {plan.name for plan in task.answers}
    return not names.isdisjoint(FIRST_LABELS) and not names.isdisjoint(FIRST_SCORES) and "start" not in names


def _answers(
    measured: Measured, model: OriginalModel, examples: Iterable[Example]
) -> list[tuple[str, float]]:
    """The best label of each text, with its score."""
    source, task, settings = measured.source, measured.task, measured.settings
    library = text.library(source)
    runs = (text.run_one(model, source, task, library, example, settings) for example in examples)
    answers = (text.answer_of(task, run) for run in runs if run is not None)
    flat = ({name: np.asarray(values).reshape(-1) for name, values in answer.items()} for answer in answers)
    return [best for best in map(_best, flat) if best]


def _best(answer: Mapping[str, Any]) -> tuple[str, float] | None:
    """The best label and its score; None if noise decides between labels, so that the case has none."""
    label = next((answer[name][0] for name in FIRST_LABELS if name in answer and len(answer[name])), None)
    scores = next((answer[name] for name in FIRST_SCORES if name in answer and len(answer[name])), None)
    if label is None or scores is None:
        return None
    return label.decode() if isinstance(label, bytes) else str(label), float(max(scores))


def _of_answers(task: TaskPlan, answers: Sequence[tuple[str, float]]) -> dict[str, Distribution]:
    if not answers:
        return {}
    labels, scores = zip(*answers, strict=True)
    first = tuple(dict.fromkeys(map(reference.label, (*task.labels, *labels))))[: reference.MOST_LABELS]
    return {
        ANSWERS: Distribution(
            texts=len(answers), shares=reference.shares(first, map(reference.label, labels))
        ),
        CONFIDENCE: Distribution(texts=len(answers), shares=reference.histogram(CONFIDENCE, scores)),
    }
