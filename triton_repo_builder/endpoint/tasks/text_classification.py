"""Text classification: logits → scores, and the top label by name, in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.support import (
    head_output,
    labels,
    modality,
    pair_types,
    saved_modules,
)
from triton_repo_builder.endpoint.tasks.support.examples import PAIRS, SINGLE
from triton_repo_builder.endpoint.tasks.support.reference import activate
from triton_repo_builder.endpoint.tasks.task import (
    Arrays,
    Kind,
    TaskPlan,
    TextInput,
    architecture,
)
from triton_repo_builder.model.graph.heads import pooling
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source

NAME = "text-classification"
KIND = Kind.TEXT
OPTIONS: tuple[str, ...] = ("labels",)
ARCHITECTURES = ("ForSequenceClassification",)
TEXTS = (TextInput(name="TEXT"), TextInput(name="TEXT_PAIR", optional=True))


def fits(source: Source) -> bool:
    """Scores [batch, labels], and config.json names the architecture, or none and they are called logits."""
    if source.config.get("architectures"):
        return bool(architecture(source, *ARCHITECTURES)) and head_output.find_labels(source, 2) is not None
    logits = source.signature.output("logits")
    return logits is not None and logits.shape is not None and len(logits.shape) == 2


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Activation and labels from config.json, by the rules of transformers' TextClassificationPipeline."""
    logits = head_output.need_labels(source, NAME, "batch")
    if saved_modules.model_type(source) == saved_modules.CROSS_ENCODER:
        modality.check(source)  # of several labels: its pairs may go through a chat template, too
    names, notes = labels.read(source, logits)
    width = len(names)
    activation, note = labels.activation(source, logits.name, width)
    notes += (note,) if note else ()
    if width == 1 and activation == "sigmoid":
        notes += ("one logit: if this is a cross-encoder, --task rerank takes QUERY and DOCUMENT",)
    single = pair_types.beyond(source)
    if single:
        notes += (f"TEXT alone, no TEXT_PAIR: {single}",)
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
        texts=TEXTS[:1] if single else TEXTS,
        examples=SINGLE if single else (*SINGLE, *PAIRS),
        softmaxed=(logits.name,) if activation == "softmax" else (),
        facts=(("activation", activation), ("labels", list(names))),
        notes=notes,
    )


def _outputs(width: int) -> tuple[TensorPlan, ...]:
    return (
        TensorPlan(name="label", data_type="TYPE_STRING", dims=(1,)),
        TensorPlan(name="score", data_type="TYPE_FP32", dims=(1,)),
        TensorPlan(name="scores", data_type="TYPE_FP32", dims=(width,), label_filename=labels.FILE),
    )


def _reference(logits: str, activation: str, names: tuple[str, ...]) -> Any:
    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        scores = activate(outputs[logits].astype(np.float64), activation)
        label = np.array([[names[index].encode()] for index in scores.argmax(axis=1)], dtype=object)
        score = scores.max(axis=1, keepdims=True).astype(np.float32)
        return {"scores": scores.astype(np.float32), "label": label, "score": score}

    return reference
