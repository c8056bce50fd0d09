"""Text classification: logits → scores, and the top label by name, in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.graph.heads import pooling
from triton_repo_builder.plan.model import Head, TensorPlan
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.signature import TensorSpec
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.support.examples import PAIRS, SINGLE
from triton_repo_builder.tasks.task import (
    Arrays,
    TaskPlan,
    TextInput,
    by_rank,
    probabilities,
)

NAME = "text-classification"
LABEL_FILE = "labels.txt"
TEXTS = (TextInput(name="TEXT"), TextInput(name="TEXT_PAIR", optional=True))


def fits(source: Source) -> bool:
    """config.json names the architecture, or the only output is called logits and is [batch, labels]."""
    architectures = [str(name) for name in source.config.get("architectures") or ()]
    if architectures:
        return any(name.endswith("ForSequenceClassification") for name in architectures)
    logits = source.signature.output("logits")
    return logits is not None and logits.shape is not None and len(logits.shape) == 2


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Activation and labels from config.json, by the rules of transformers' TextClassificationPipeline."""
    logits = by_rank(source.signature, 2, "logits")
    if logits is None or logits.shape is None:
        raise TrbError(
            Code.TASK_UNCLEAR,
            "the model has no output of scores [batch, labels]",
            where=str(source.path),
            remedy="use --task embedding or --task tensor",
        )
    names, notes = labels_of(source, logits)
    width = len(names)
    ready = probabilities(source.signature, logits.name)
    activation = "none" if ready else _activation(source, width)
    notes += (ready,) if ready else ()
    if width == 1 and activation == "sigmoid":
        notes += ("one logit: if this is a cross-encoder, --task rerank takes QUERY and DOCUMENT",)
    return TaskPlan(
        name=NAME,
        head=Head(
            text=pooling.classification(activation=activation, labels=width),
            bind={"logits": logits.name},
            strings=(("label_names", names),),
        ),
        outputs=_outputs(width),
        reference=_reference(logits.name, activation, names),
        labels=names,
        texts=TEXTS,
        examples=(*SINGLE, *PAIRS),
        facts=(("activation", activation), ("labels", list(names))),
        notes=notes,
    )


def labels_of(source: Source, logits: TensorSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(labels, notes): the names of the last axis of ``logits``. Raises ``TrbError`` TASK_UNCLEAR."""
    names = _labels(source)
    last = logits.dims[-1]
    width = last if last > 0 else len(names)
    if not width:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"nothing says how many labels output '{logits.name}' has",
            where=str(source.path),
            remedy="put config.json with its id2label beside the model",
        )
    if names and len(names) != width:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"config.json names {len(names)} labels, output '{logits.name}' has {width}",
            where=str(source.path),
            remedy="use the config.json that belongs to this model",
        )
    if names:
        return names, ()
    called = "LABEL_0" if width == 1 else f"LABEL_0 to LABEL_{width - 1}"
    return (
        tuple(f"LABEL_{number}" for number in range(width)),
        (f"no labels found in config.json: they are called {called}",),
    )


def _labels(source: Source) -> tuple[str, ...]:
    """id2label sorted by number, not by spelling ("10" comes after "9")."""
    named = source.config.get("id2label") or {}
    try:
        numbers = {int(key): str(name) for key, name in named.items()}
    except (AttributeError, ValueError):
        numbers = {-1: ""}
    if sorted(numbers) != list(range(len(named))):
        raise TrbError(
            Code.TASK_UNCLEAR,
            "id2label in config.json does not name every label by its number",
            where=str(source.path.parent / "config.json"),
            remedy=f'its keys must be "0", "1" and so on; they are: {", ".join(map(str, named))}',
        )
    # One line each in labels.txt, and valid UTF-8: JSON may hold half of a surrogate pair.
    lines = (" ".join(numbers[number].splitlines()) for number in range(len(named)))
    return tuple(line.encode("utf-8", "replace").decode() for line in lines)


def _activation(source: Source, width: int) -> str:
    kind = source.config.get("problem_type")
    if kind == "regression":
        return "none"
    return "sigmoid" if kind == "multi_label_classification" or width == 1 else "softmax"


def _outputs(width: int) -> tuple[TensorPlan, ...]:
    return (
        TensorPlan(name="label", data_type="TYPE_STRING", dims=(1,)),
        TensorPlan(name="score", data_type="TYPE_FP32", dims=(1,)),
        TensorPlan(name="scores", data_type="TYPE_FP32", dims=(width,), label_filename=LABEL_FILE),
    )


def _reference(logits: str, activation: str, names: tuple[str, ...]) -> Any:
    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        scores = outputs[logits].astype(np.float64)
        if activation == "softmax":
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
        elif activation == "sigmoid":
            scores = 1 / (1 + np.exp(-scores))
        label = np.array([[names[index].encode()] for index in scores.argmax(axis=1)], dtype=object)
        score = scores.max(axis=1, keepdims=True).astype(np.float32)
        return {"scores": scores.astype(np.float32), "label": label, "score": score}

    return reference
