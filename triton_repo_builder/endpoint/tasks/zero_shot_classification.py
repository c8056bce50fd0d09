"""Zero-shot classification over an NLI model: TEXT and LABELS → labels and scores, best first.

Each label makes a hypothesis, each hypothesis a row of the model, as in transformers' pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import task
from triton_repo_builder.endpoint.tasks.support import head_output, labels, reference
from triton_repo_builder.endpoint.tasks.support.examples import LONG
from triton_repo_builder.endpoint.tasks.task import (
    Encoded,
    Encoding,
    Example,
    Kind,
    OriginalRun,
    Postprocess,
    TaskPlan,
    TextInput,
)
from triton_repo_builder.model.graph.heads import tokens
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names

NAME = "zero-shot-classification"
KIND = Kind.TEXT
OPTIONS = ("hypothesis_template", "multi_label", "most_rows")
ARCHITECTURES: tuple[str, ...] = ()
HYPOTHESIS = "This example is {}."
OUTPUTS = (
    TensorPlan(name="labels", data_type="TYPE_STRING", dims=(-1,)),
    TensorPlan(name="scores", data_type="TYPE_FP32", dims=(-1,)),
)
EXAMPLES: tuple[tuple[str, Example], ...] = tuple(
    (name, {"TEXT": (text,), "LABELS": labels})
    for name, text, labels in (
        ("short", "I have a problem with my phone!", ("urgent", "not urgent", "phone", "tablet")),
        ("one_label", "The match ended two to one.", ("sports",)),
        ("scripts", "今日は天気がいい。Привет 😀", ("weather", "Wetter morgen", "天気", "naïve café")),
        ("empty", "", ("something", "nothing")),
        ("beyond_the_limit", LONG * 80, ("batching", "cooking", "a much longer label than all the others")),
    )
)


def fits(source: Source) -> bool:
    """Never by itself: an NLI model is a classifier of pairs as well."""
    return False


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """The two logits of each hypothesis from the graph; shares and order after it."""
    logits = head_output.need_labels(source, NAME, "batch")
    task.need_logits(source, logits.name, NAME)
    names, _ = labels.read(source, logits)
    if len(names) < 2:
        raise TrbError(
            Code.TASK_UNCLEAR,
            "a model of one logit cannot tell entailment from contradiction",
            where=str(source.path),
            remedy="zero-shot classification needs a sequence classifier trained on NLI",
        )
    hypothesis = HYPOTHESIS if options.hypothesis_template is None else options.hypothesis_template
    check_template(hypothesis, HYPOTHESIS)
    multi = bool(options.multi_label)
    entailment, notes = _entailment(source, names)
    contradiction = -1 if entailment == 0 else 0
    columns = (contradiction, entailment)
    return TaskPlan(
        name=NAME,
        head=Head(
            text=tokens.zero_shot(labels=len(names), contradiction=contradiction, entailment=entailment),
            bind={"logits": logits.name, "places": tensor_names.CHUNK_INDEX},
        ),
        outputs=(TensorPlan(name=tensor_names.LOGITS, data_type="TYPE_FP32", dims=(-1, 2)),),
        reference=task.by_answer,
        texts=(TextInput(name="TEXT"), TextInput(name="LABELS", several=True)),
        encoding=Encoding(
            truncation="only_first",
            chunks="rows",
            whole=hypothesis.format("a"),
            parameters=(("hypothesis", hypothesis), task.most_rows(options)),
        ),
        post=Postprocess(
            module="zero_shot_classification.py",
            inputs=("LABELS", tensor_names.LOGITS),
            outputs=OUTPUTS,
            parameters=(("multi_label", "true" if multi else "false"),),
        ),
        examples=EXAMPLES,
        encode=_encoder(hypothesis),
        answer=_reference(logits.name, columns, multi),
        softmaxed=(logits.name,),
        facts=(
            ("hypothesis_template", hypothesis),
            ("multi_label", multi),
            ("entailment", names[entailment]),
        ),
        notes=notes,
    )


def check_template(hypothesis: str, usual: str) -> None:
    """``TrbError`` USAGE for a template without one plain place for a label, or that is not text."""
    before, place, after = hypothesis.partition("{}")
    message = ""
    if not place:
        message = "has no place for the label"
    elif {"{", "}"} & {*before, *after}:
        message = "has braces besides the place for the label"
    elif not hypothesis.isprintable():
        message = "has characters that are not text"
    if message:
        raise usage("hypothesis_template", f"{hypothesis!a:.80} {message}", f"e.g. '{usual}'")


def _entailment(source: Source, names: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """The label that starts with "entail", as the pipeline looks it up; else the last, and a note."""
    stated: Mapping[str, Any] = source.config.get("label2id") or {}
    listed = stated if stated else {name: number for number, name in enumerate(names)}
    for name, number in listed.items():
        if str(name).lower().startswith("entail") and number in range(len(names)):
            return int(number), ()
    note = f"no label is called entailment: the last one, '{names[-1]}', is used, as in transformers"
    return -1, (note,)


def _encoder(hypothesis: str) -> Any:
    def encode(tokenizer: Any, example: Example, limit: int | None) -> list[Encoded]:
        return [
            dict(
                tokenizer(
                    example["TEXT"][0],
                    hypothesis.format(label),
                    truncation="only_first" if limit else False,
                    max_length=limit,
                    return_token_type_ids=True,
                )
            )
            for label in example["LABELS"]
        ]

    return encode


def _reference(logits: str, columns: tuple[int, int], multi: bool) -> Any:
    def answer(run: OriginalRun) -> dict[str, npt.NDArray[Any]]:
        candidates = run.example["LABELS"]
        values = run.outputs[logits][:, list(columns)].astype(np.float64)
        if multi or len(candidates) == 1:
            scores = reference.sigmoid(values[:, 1] - values[:, 0])
        else:
            scores = reference.softmax(values[:, 1])
        order = sorted(range(len(candidates)), key=lambda place: -scores[place])
        return {
            "labels": np.array([[candidates[place].encode() for place in order]], dtype=object),
            "scores": scores[order][None].astype(np.float32),
        }

    return answer
