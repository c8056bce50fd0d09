"""Image classification: logits → the best labels by name with their scores, in the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.support import head_output, labels, vision
from triton_repo_builder.endpoint.tasks.support.reference import activate
from triton_repo_builder.endpoint.tasks.task import (
    Arrays,
    Kind,
    TaskPlan,
    architecture,
)
from triton_repo_builder.model.graph.heads import image
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import timm_config
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source

NAME = "image-classification"
KIND = Kind.IMAGE
OPTIONS = ("top_k", "labels")
ARCHITECTURES = ("ForImageClassification",)
TOP_K = 5


def fits(source: Source) -> bool:
    """config.json names the architecture, or it names labels and the only output is [batch, labels]."""
    if not vision.images(source):
        return False
    if source.config.get("architectures"):
        return bool(architecture(source, *ARCHITECTURES)) and head_output.find_labels(source, 2) is not None
    outputs = source.signature.outputs
    stated = head_output.id2label(source.config) or timm_config.settings(source.config)
    named = source.signature.output("logits") is not None or bool(stated)
    if timm_config.headless(source.config):
        return False
    return named and len(outputs) == 1 and len(outputs[0].shape or ()) == 2


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Labels and activation by the rules of transformers' ImageClassificationPipeline."""
    return best_labels(source, options, NAME)


def best_labels(source: Source, options: BuildOptions, task: str) -> TaskPlan:
    """The best labels of logits [batch, labels], with their scores. Raises ``TrbError``."""
    logits = head_output.need_labels(source, task, "batch")
    names, notes = labels.read(source, logits)
    activation, why = labels.activation(source, logits.name, len(names))
    top = min(options.top_k or TOP_K, len(names))
    notes += (why,) if why else ()
    return TaskPlan(
        name=task,
        head=Head(
            text=image.classification(
                activation=activation, labels=len(names), top=top, opset=source.signature.opset
            ),
            bind={"logits": logits.name},
            strings=(("label_names", names),),
            oldest_opset=image.OLDEST_OPSET,
        ),
        outputs=(
            TensorPlan(name="label", data_type="TYPE_STRING", dims=(1,)),
            TensorPlan(name="score", data_type="TYPE_FP32", dims=(1,)),
            TensorPlan(name="top_labels", data_type="TYPE_STRING", dims=(top,)),
            TensorPlan(name="top_scores", data_type="TYPE_FP32", dims=(top,)),
        ),
        reference=_reference(logits.name, activation, names, top),
        softmaxed=(logits.name,) if activation == "softmax" else (),
        facts=(("activation", activation), ("top_k", top), ("labels", list(names))),
        notes=notes,
    )


def _reference(
    output: str, activation: str, names: tuple[str, ...], top: int
) -> Callable[[Arrays, npt.NDArray[np.int64]], dict[str, npt.NDArray[np.generic]]]:
    def reference(outputs: Arrays, mask: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
        scores = activate(outputs[output].astype(np.float64), activation)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        best_labels = np.array([[names[place].encode() for place in row] for row in best], dtype=object)
        values = np.take_along_axis(scores, best, axis=1).astype(np.float32)
        return {
            "label": best_labels[:, :1],
            "score": values[:, :1],
            "top_labels": best_labels,
            "top_scores": values,
        }

    return reference
