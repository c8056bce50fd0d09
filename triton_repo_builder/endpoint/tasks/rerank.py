"""Reranking: a cross-encoder's one logit for QUERY and DOCUMENT → score, as sentence-transformers does.

Since release 5.4 of it a cross-encoder may be a transformer, Pooling and a Dense module to one value, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import embedding, text_classification
from triton_repo_builder.endpoint.tasks.support import head_output, layers, modality, prompts, saved_modules
from triton_repo_builder.endpoint.tasks.support.examples import PAIRS, renamed
from triton_repo_builder.endpoint.tasks.support.reference import activate
from triton_repo_builder.endpoint.tasks.support.saved_modules import Described
from triton_repo_builder.endpoint.tasks.task import (
    Arrays,
    Kind,
    TaskPlan,
    TextInput,
    architecture,
    probabilities,
)
from triton_repo_builder.model.graph.heads import pooling
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source

NAME = "rerank"
KIND = Kind.TEXT
OPTIONS: tuple[str, ...] = ()
ARCHITECTURES: tuple[str, ...] = ()
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none"}


def fits(source: Source) -> bool:
    """A model of one score whose files were saved by the CrossEncoder of sentence-transformers."""
    logits = head_output.find(source, 2, (1,))
    if saved_modules.model_type(source) == saved_modules.CROSS_ENCODER:
        # Without logits it is the modules that score; or the export lacks its head, which ``plan`` says.
        classifier = head_output.find_labels(source, 2)
        return logits is not None and logits.dims[-1] == 1 if classifier else True
    return (
        logits is not None
        and logits.dims[-1] == 1
        and _stated(source) is not None
        and bool(architecture(source, *text_classification.ARCHITECTURES))
    )


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """The activation from the CrossEncoder's files, else the sigmoid that it takes for one logit."""
    logits = head_output.find(source, 2, (1,))
    described = _modules(source) if logits is None else None
    if described is None and (logits is None or logits.dims[-1] not in (1, -1)):
        problem = f"it has {logits.dims[-1]}" if logits else f"it has {head_output.shown(source)}"
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"a cross-encoder gives one logit for each pair of texts: {problem}",
            where=str(source.path),
            remedy="use --task text-classification, which takes pairs as well (TEXT and TEXT_PAIR)"
            if logits
            else "export it with its head: optimum-cli export onnx --task text-classification",
        )
    prompts.refuse(source, NAME)
    modality.check_pairs(source)
    activation, notes = _activation(source)
    if described is not None:
        head, reference = _pooled(source, described, activation)
    else:
        assert logits is not None
        ready = probabilities(source.signature, logits.name)
        activation, notes = ("none", (ready,)) if ready else (activation, notes)
        head = Head(text=pooling.rerank(activation=activation), bind={"logits": logits.name})
        reference = _reference(logits.name, activation)
    return TaskPlan(
        name=NAME,
        head=head,
        outputs=(TensorPlan(name="score", data_type="TYPE_FP32", dims=(1,)),),
        reference=reference,
        texts=(TextInput(name="QUERY"), TextInput(name="DOCUMENT")),
        examples=renamed(PAIRS, "QUERY", "DOCUMENT"),
        facts=(
            ("activation", activation),
            *((("pooling", described.pooling), *layers.facts(described.layers)) if described else ()),
        ),
        notes=(*notes, *modality.note(source)),
    )


def _modules(source: Source) -> Described | None:
    """Pooling and the layers of a cross-encoder that is made of modules; None for others."""
    if saved_modules.model_type(source) != saved_modules.CROSS_ENCODER:
        return None
    described = saved_modules.described(source, feature=saved_modules.SCORES)
    return described if described.pooling and described.layers else None


def _pooled(source: Source, described: Described, activation: str) -> tuple[Head, Any]:
    """The head of token vectors, and its reference."""
    modes = described.pooling or ""
    tokens = embedding.need_tokens(source, embedding.TOKENS)
    width = tokens.dims[-1]
    scores = layers.width(described.layers, width * len(modes.split("+")) if width > 0 else -1)
    if scores != 1:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"its last module gives {scores} values, and a score is one",
            where=str(source.folder / saved_modules.MODULES),
            remedy="use --raw-output, and apply the modules in the client",
        )
    text = pooling.rerank_pooled(
        activation=activation,
        pooling=modes,
        width=width if width > 0 else None,
        opset=source.signature.opset,
        layers=[layer.graph for layer in described.layers],
    )

    def reference(outputs: Arrays, mask: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        rows = embedding.vectors(outputs[tokens.name], mask, modes, described.layers)
        return {"score": activate(rows, activation).astype(np.float32)}

    bind = {"hidden": tokens.name, "attention_mask": "attention_mask"}
    return Head(text=text, bind=bind, floats=layers.floats(described.layers)), reference


def _activation(source: Source) -> tuple[str, tuple[str, ...]]:
    """The activation of the files, else the sigmoid, with a note. Raises ``TrbError``."""
    stated = _stated(source)
    if stated is None:
        return "sigmoid", (
            f"no file states the cross-encoder's activation ({prompts.FILE}, which exporters leave behind: "
            "--from-model FOLDER takes it from the original): sigmoid, as in sentence-transformers",
        )
    named = stated.rsplit(".", 1)[-1]
    supported = named in ACTIVATIONS and (stated == named or stated.startswith(layers.TORCH))
    if not supported:
        shown = named if stated.startswith(layers.TORCH) else stated
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"the activation {shown:.80} of a cross-encoder is not supported",
            where=str(source.path.parent / "config.json"),
            remedy=f"save the model with one of {', '.join(ACTIVATIONS)} of torch.nn",
        )
    return ACTIVATIONS[named], ()


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
