"""Labelled examples: quality at the task, not only distance from the original.

A line of the file is a JSON object: the endpoint's inputs, and the right answer. ``label`` gives accuracy and
F1, ``score`` of two texts Spearman's correlation, ``relevance`` of a query's documents nDCG, ``entities`` F1,
``answer`` to a question exact match and F1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.tasks.task import Example, TaskPlan
from triton_repo_builder.measure import quality
from triton_repo_builder.measure.bench.load import texts as corpus
from triton_repo_builder.measure.optimize.accuracy import Answer
from triton_repo_builder.measure.optimize.samples import SampleSet

Ask = Callable[[Example], Answer]
"""A model's answer to one example. Raises ``TrbError``."""
Line = Mapping[str, Any]
EMBEDDINGS = ("embedding",)
CLASSIFIERS = ("text-classification", "zero-shot-classification")


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The examples of one file, checked."""

    file: Path
    count: int
    measure: Callable[[Ask], dict[str, float]]
    """Each measure of a model's answers by name; 1 is best."""


def read(file: Path, task: TaskPlan) -> Labelled:
    """The examples. Raises ``TrbError`` if a line is none for this task, or the task has no measure."""
    forms = _forms(task)
    if not forms:
        raise TrbError(
            Code.USAGE,
            f"--labelled knows no measure for the task {task.name}",
            where=str(file),
            remedy="leave it out: the answers are compared with the original's in any case",
        )
    lines = [_line(text, file, number) for number, text in enumerate(corpus.corpus(file), 1)]
    form = next((candidate for candidate in forms if candidate.right in lines[0]), None)
    for number, line in enumerate(lines, 1):
        rights = " or ".join(candidate.right for candidate in forms)
        problem = form.problem(line) if form else f"there is no {rights}"
        if problem:
            raise _wrong(file, number, problem, forms)
    assert form is not None
    return Labelled(file=file, count=len(lines), measure=lambda ask: form.measure(ask, lines))


def measured(examples: Labelled | None, samples: SampleSet, model: OriginalModel) -> dict[str, float]:
    """A model's results on the examples, by measure; empty without examples. Raises ``TrbError``."""
    if examples is None or samples.ask is None:
        return {}
    return examples.measure(partial(samples.ask, model))


@dataclass(frozen=True, kw_only=True)
class _Form:
    """One form of lines: the field of the right answer, its inputs, an example, and its measure."""

    right: str
    valid: Callable[[Any], bool]
    texts: Mapping[str, int]
    """Number of texts by input; 0 for any number."""
    shown: str
    measure: Callable[[Ask, Sequence[Line]], dict[str, float]]

    def problem(self, line: Line) -> str:
        """The fault of a line; empty if there is none."""
        if self.right not in line:
            return f"there is no {self.right}"
        if not self.valid(line[self.right]):
            return f"{self.right} is not of the form of the example"
        for name, count in self.texts.items():
            values = _texts(line.get(name))
            if not values or (count and len(values) != count):
                return f"{name} must be {'a list of texts' if count != 1 else 'a text'}"
            if self.right == "relevance" and not count and len(values) != len(line[self.right]):
                return f"{name} and relevance are of different length"
        if unknown := sorted(set(line) - {self.right, "TEXT_PAIR", *self.texts}):
            return f"'{unknown[0]}' is not known"
        return ""


def _forms(task: TaskPlan) -> list[_Form]:
    inputs = {text.name: 0 if text.several else 1 for text in task.texts if not text.optional}
    numbers = {"QUERY": 1, "DOCUMENTS": 0}
    ranked = '{"QUERY": "…", "DOCUMENTS": ["…", "…"], "relevance": [1, 0]}'
    if task.name in CLASSIFIERS:
        fields = {name: "…" if count else ["…", "…"] for name, count in inputs.items()}
        shown = json.dumps({**fields, "label": task.labels[0] if task.labels else "…"}, ensure_ascii=False)
        labels = frozenset(task.labels)

        def label(value: Any) -> bool:
            return isinstance(value, str) and (not labels or value in labels)

        return [_Form(right="label", valid=label, texts=inputs, shown=shown, measure=_labels)]
    if task.name in EMBEDDINGS:
        shown = '{"TEXT": ["…", "…"], "score": 0.8}'
        pairs = _Form(right="score", valid=_number, texts={"TEXT": 2}, shown=shown, measure=_similarity)
        ranks = _Form(right="relevance", valid=_numbers, texts=numbers, shown=ranked, measure=_retrieval)
        return [pairs, ranks]
    if task.name == "rerank":
        shown = '{"QUERY": "…", "DOCUMENT": "…", "score": 0.8}'
        pairs = _Form(right="score", valid=_number, texts=inputs, shown=shown, measure=_scores)
        ranks = _Form(right="relevance", valid=_numbers, texts=numbers, shown=ranked, measure=_reranking)
        return [pairs, ranks]
    if task.name == "token-classification":
        shown = '{"TEXT": "…", "entities": [{"start": 0, "end": 4, "label": "PER"}]}'
        return [_Form(right="entities", valid=_spans, texts=inputs, shown=shown, measure=_entities)]
    if task.name == "question-answering":
        shown = '{"QUESTION": "…", "CONTEXT": "…", "answer": "…"}'
        return [_Form(right="answer", valid=_is_text, texts=inputs, shown=shown, measure=_spoken)]
    return []


def _labels(ask: Ask, lines: Sequence[Line]) -> dict[str, float]:
    predicted = [_first(ask(_example(line)), "label", "labels") for line in lines]
    right = [str(line["label"]) for line in lines]
    return {"accuracy": quality.accuracy(predicted, right), "F1": quality.macro_f1(predicted, right)}


def _similarity(ask: Ask, lines: Sequence[Line]) -> dict[str, float]:
    pairs = [[_vector(ask({"TEXT": (text,)})) for text in line["TEXT"]] for line in lines]
    cosines = [quality.cosine(first, second) for first, second in pairs]
    return {"Spearman": quality.spearman(cosines, [float(line["score"]) for line in lines])}


def _retrieval(ask: Ask, lines: Sequence[Line]) -> dict[str, float]:
    gains = []
    for line in lines:
        query = _vector(ask({"TEXT": (line["QUERY"],)}))
        scores = [quality.cosine(query, _vector(ask({"TEXT": (text,)}))) for text in line["DOCUMENTS"]]
        gains.append(quality.ndcg(scores, line["relevance"]))
    return {f"nDCG@{quality.BEST}": float(np.mean(gains))}


def _scores(ask: Ask, lines: Sequence[Line]) -> dict[str, float]:
    scores = [float(np.asarray(ask(_example(line))["score"]).reshape(-1)[0]) for line in lines]
    return {"Spearman": quality.spearman(scores, [float(line["score"]) for line in lines])}


def _reranking(ask: Ask, lines: Sequence[Line]) -> dict[str, float]:
    gains = []
    for line in lines:
        answers = [ask({"QUERY": (line["QUERY"],), "DOCUMENT": (text,)}) for text in line["DOCUMENTS"]]
        scores = [float(np.asarray(answer["score"]).reshape(-1)[0]) for answer in answers]
        gains.append(quality.ndcg(scores, line["relevance"]))
    return {f"nDCG@{quality.BEST}": float(np.mean(gains))}


def _entities(ask: Ask, lines: Sequence[Line]) -> dict[str, float]:
    spans: list[tuple[Counter[Any], Counter[Any]]] = []
    for line in lines:
        answer = ask(_example(line))
        columns = [np.asarray(answer[name]).reshape(-1).tolist() for name in ("start", "end", "label")]
        predicted = Counter((start, end, _text(label)) for start, end, label in zip(*columns, strict=True))
        right = Counter((entity["start"], entity["end"], entity["label"]) for entity in line["entities"])
        spans.append((predicted, right))
    return {"F1": quality.overlap_f1(spans)}


def _spoken(ask: Ask, lines: Sequence[Line]) -> dict[str, float]:
    predicted = [_first(ask(_example(line)), "answer") for line in lines]
    return quality.answers(predicted, [line["answer"] for line in lines])


def _line(text: str, file: Path, number: int) -> Line:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise TrbError(
            Code.USAGE,
            f"example {number} is not a JSON object",
            where=str(file),
            remedy='write one example per line, such as {"TEXT": "…", "label": "…"}',
        )
    return line


def _wrong(file: Path, number: int, problem: str, forms: Sequence[_Form]) -> TrbError:
    shown = " or ".join(form.shown for form in forms)
    return TrbError(
        Code.USAGE, f"example {number}: {problem}", where=str(file), remedy=f"write lines such as {shown}"
    )


def _example(line: Line) -> Example:
    return {name: _texts(value) for name, value in line.items() if name.isupper()}


def _texts(value: Any) -> tuple[str, ...]:
    """The texts of a field; empty if it is neither a text nor a list of texts."""
    values = value if isinstance(value, list) else [value]
    return tuple(values) if all(isinstance(text, str) for text in values) else ()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number, value))


def _spans(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and _number(entry.get("start"))
        and _number(entry.get("end"))
        and isinstance(entry.get("label"), str)
        for entry in value
    )


def _vector(answer: Answer) -> npt.NDArray[np.float64]:
    return np.asarray(answer["embedding"], np.float64).reshape(-1)


def _first(answer: Answer, *names: str) -> str:
    name = next(name for name in names if name in answer)
    return _text(np.asarray(answer[name]).reshape(-1)[0])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
