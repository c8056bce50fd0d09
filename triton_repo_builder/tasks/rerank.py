"""Reranking: a cross-encoder's one logit for QUERY and DOCUMENT → score, as sentence-transformers does."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.graph.heads import pooling
from triton_repo_builder.plan.model import Head, TensorPlan
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks import text_classification
from triton_repo_builder.tasks.support import head_output, prompts
from triton_repo_builder.tasks.support.examples import PAIRS, renamed
from triton_repo_builder.tasks.support.reference import activate
from triton_repo_builder.tasks.task import (
    Arrays,
    Kind,
    TaskPlan,
    TextInput,
    architecture,
    probabilities,
)

NAME = "rerank"
KIND = Kind.TEXT
OPTIONS: tuple[str, ...] = ()
ARCHITECTURES: tuple[str, ...] = ()
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none"}


def fits(source: Source) -> bool:
    """A classifier of one logit whose files were saved by the CrossEncoder of sentence-transformers."""
    logits = head_output.find(source, 2, (1,))
    return (
        logits is not None
        and logits.dims[-1] == 1
        and _stated(source) is not None
        and bool(architecture(source, *text_classification.ARCHITECTURES))
    )


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """The activation from the CrossEncoder's files, else the sigmoid that it takes for one logit."""
    logits = head_output.find(source, 2, (1,))
    if logits is None or logits.dims[-1] not in (1, -1):
        problem = f"it has {logits.dims[-1]}" if logits else f"it has {head_output.shown(source)}"
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"a cross-encoder gives one logit for each pair of texts: {problem}",
            where=str(source.path),
            remedy="use --task text-classification, which takes pairs as well (TEXT and TEXT_PAIR)",
        )
    prompts.refuse(source, NAME)
    stated = _stated(source)
    named = (stated or "Sigmoid").rsplit(".", 1)[-1]
    if named not in ACTIVATIONS:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"the activation {named} of a cross-encoder is not supported",
            where=str(source.path.parent / "config.json"),
            remedy=f"save the model with one of {', '.join(ACTIVATIONS)}",
        )
    activation = ACTIVATIONS[named]
    ready = probabilities(source.signature, logits.name)
    activation = "none" if ready else activation
    note = (
        f"no file states the cross-encoder's activation ({prompts.FILE}, which exporters leave behind: "
        "--from-model FOLDER takes it from the original): sigmoid, as in sentence-transformers"
    )
    return TaskPlan(
        name=NAME,
        head=Head(text=pooling.rerank(activation=activation), bind={"logits": logits.name}),
        outputs=(TensorPlan(name="score", data_type="TYPE_FP32", dims=(1,)),),
        reference=_reference(logits.name, activation),
        texts=(TextInput(name="QUERY"), TextInput(name="DOCUMENT")),
        examples=renamed(PAIRS, "QUERY", "DOCUMENT"),
        facts=(("activation", activation),),
        notes=(ready,) if ready else () if stated else (note,),
    )


def _stated(source: Source) -> str | None:
    """The activation's class as sentence-transformers writes it: since 5.4 in a file of its own."""
    saved = source.settings(prompts.FILE)
    section = source.config.get("sentence_transformers")
    stated = (
        saved.get("activation_fn"),
        section.get("activation_fn") if isinstance(section, dict) else None,
        source.config.get("sbert_ce_default_activation_function"),
    )
    return next((value for value in stated if isinstance(value, str)), None)


def _reference(logits: str, activation: str) -> Any:
    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        score = activate(outputs[logits].astype(np.float64), activation)
        return {"score": score.astype(np.float32)}

    return reference
