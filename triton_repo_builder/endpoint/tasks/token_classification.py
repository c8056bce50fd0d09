"""Token classification (NER): TEXT → entities, by the rules of transformers' TokenClassificationPipeline."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import task
from triton_repo_builder.endpoint.tasks.support import head_output, labels, reference
from triton_repo_builder.endpoint.tasks.support.examples import SINGLE
from triton_repo_builder.endpoint.tasks.task import (
    Encoded,
    Encoding,
    Example,
    Kind,
    OriginalRun,
    Postprocess,
    TaskPlan,
)
from triton_repo_builder.model.graph.heads import tokens as heads_tokens
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names

NAME = "token-classification"
KIND = Kind.TEXT
OPTIONS = ("aggregation", "labels")
ARCHITECTURES = ("ForTokenClassification",)
AGGREGATIONS = ("none", "simple", "first", "average", "max")
OUTPUTS = (
    TensorPlan(name="entities", data_type="TYPE_STRING", dims=(1,)),
    TensorPlan(name="start", data_type="TYPE_INT32", dims=(-1,)),
    TensorPlan(name="end", data_type="TYPE_INT32", dims=(-1,)),
    TensorPlan(name="label", data_type="TYPE_STRING", dims=(-1,)),
    TensorPlan(name="score", data_type="TYPE_FP32", dims=(-1,)),
    TensorPlan(name="text", data_type="TYPE_STRING", dims=(-1,)),
)
MORE: tuple[tuple[str, Example], ...] = (
    ("names", {"TEXT": ("Angela Merkel met Barack Obama in São Paulo, and 田中 in 東京 🗼.",)}),
    (
        "words",
        {"TEXT": ("Unquestionably, Schwarzenegger's hyper-parameterisation confuses Llanfairpwllgwyngyll.",)},
    ),
)


def fits(source: Source) -> bool:
    """There are some logits for each token, and config.json names no other architecture."""
    if task.architecture(source, *ARCHITECTURES):
        return head_output.find_labels(source, 3) is not None
    output = head_output.find_labels(source, 3)
    if output is None or source.config.get("architectures"):
        return False
    scores = task.unnamed_logits(source) not in (0, source.signature.vocabulary)
    return scores or head_output.are_labels(source, output)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Softmax over the labels of each token in the graph; words and entities after it."""
    aggregation = options.aggregation or "simple"
    if aggregation not in AGGREGATIONS:
        raise usage("aggregation", f"'{aggregation}' is unknown", f"use one of {', '.join(AGGREGATIONS)}")
    logits = head_output.need_labels(source, NAME, "batch", "tokens")
    task.need_logits(source, logits.name, NAME)
    names, notes = labels.read(source, logits)
    unknown, axis = task.token_id(source, "unk_token"), task.tokens_axis(source)
    return TaskPlan(
        name=NAME,
        head=Head(text=heads_tokens.token_classification(len(names)), bind={"logits": logits.name}),
        outputs=(TensorPlan(name=tensor_names.SCORES, data_type="TYPE_FP32", dims=(axis, len(names))),),
        reference=task.by_answer,
        encoding=Encoding(offsets="tokens", parameters=(("unk_id", str(unknown)),)),
        post=Postprocess(
            module="token_classification.py",
            inputs=("TEXT", tensor_names.OFFSETS, tensor_names.SCORES),
            outputs=OUTPUTS,
            parameters=(
                ("aggregation", aggregation),
                ("labels", json.dumps(names, ensure_ascii=False)),
            ),
        ),
        examples=(*SINGLE, *MORE),
        encode=_encode,
        answer=_reference(logits.name, names, aggregation),
        softmaxed=(logits.name,),
        facts=(("aggregation", aggregation), ("labels", list(names))),
        notes=notes,
    )


def _encode(tokenizer: Any, example: Example, limit: int | None) -> list[Encoded]:
    row = tokenizer(
        example["TEXT"][0],
        truncation=limit is not None,
        max_length=limit,
        return_token_type_ids=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    return [dict(row)]


def _reference(logits: str, names: tuple[str, ...], aggregation: str) -> Any:
    """The pipeline's rules written apart from the served ones: scores, words, groups as tables."""

    def answer(run: OriginalRun) -> dict[str, npt.NDArray[Any]]:
        text, row = run.example["TEXT"][0], run.rows[0]
        values = run.outputs[logits][0].astype(np.float64)
        shares = reference.softmax(values)
        places = [place for place, special in enumerate(row["special_tokens_mask"]) if not special]
        offsets = [row["offset_mapping"][place] for place in places]
        word_of = np.cumsum([not _goes_on(run.tokenizer, text, row, place) for place in places])
        if aggregation in ("none", "simple"):
            word_of = np.arange(len(places))
        words = []
        for _, grouped in groupby(range(len(places)), key=lambda n: word_of[n]):
            members = list(grouped)
            tokens = shares[[places[n] for n in members]]
            chosen = {"max": lambda t: t[t.max(axis=1).argmax()], "average": lambda t: t.mean(axis=0)}
            scores = chosen.get(aggregation, lambda t: t[0])(tokens)
            start, end = offsets[members[0]][0], offsets[members[-1]][1]
            words.append((names[scores.argmax()], scores.max(), start, end))
        if aggregation != "none":
            words = _merged(words)
        kept = [word for word in words if word[0] != "O"]
        document = [
            {"label": label, "score": float(score), "start": start, "end": end, "text": text[start:end]}
            for label, score, start, end in kept
        ]
        return {
            "entities": np.array([[json.dumps(document, ensure_ascii=False).encode()]], dtype=object),
            "start": np.array([[word[2] for word in kept]], np.int32).reshape(1, -1),
            "end": np.array([[word[3] for word in kept]], np.int32).reshape(1, -1),
            "label": np.array([[word[0].encode() for word in kept]], dtype=object).reshape(1, -1),
            "score": np.array([[word[1] for word in kept]], np.float32).reshape(1, -1),
            "text": np.array([[text[w[2] : w[3]].encode() for w in kept]], dtype=object).reshape(1, -1),
        }

    return answer


def _goes_on(tokenizer: Any, text: str, row: Encoded, place: int) -> bool:
    """Whether a token continues the word before it, as the pipeline decides."""
    start, end = row["offset_mapping"][place]
    number = row["input_ids"][place]
    if number == tokenizer.unk_token_id:
        return False
    if getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None):
        return len(tokenizer.convert_ids_to_tokens(number)) != len(text[start:end])
    return start > 0 and " " not in text[start - 1 : start + 1]


def _merged(words: list[Any]) -> list[Any]:
    """Runs of one kind; a B- label starts a new run."""
    kinds = [label[2:] if label[:2] in ("B-", "I-") else label for label, *_ in words]
    starts = [n == 0 or kinds[n] != kinds[n - 1] or words[n][0].startswith("B-") for n in range(len(words))]
    runs = np.cumsum(starts) if starts else np.array([])
    merged = []
    for run in dict.fromkeys(runs.tolist()):
        members = [word for word, word_run in zip(words, runs, strict=True) if word_run == run]
        name = members[0][0].split("-", 1)[-1]
        merged.append((name, float(np.mean([m[1] for m in members])), members[0][2], members[-1][3]))
    return merged
