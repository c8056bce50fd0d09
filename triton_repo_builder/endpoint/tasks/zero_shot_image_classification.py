"""Zero-shot classification of images: IMAGE and LABELS → labels and scores, best first (CLIP, SigLIP).

Each label makes a sentence, each sentence a row of the text tower, as in transformers' pipeline.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks import task, zero_shot_classification
from triton_repo_builder.endpoint.tasks.support import head_output, reference, vision
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
from triton_repo_builder.model.graph.heads import towers
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names

NAME = "zero-shot-image-classification"
KIND = Kind.IMAGE_AND_TEXT
OPTIONS = ("hypothesis_template", "most_rows")
ARCHITECTURES: tuple[str, ...] = ()
HYPOTHESIS = "This is a photo of {}."
LABELS, SCORES = "LABELS", vision.SCORES
OUTPUTS = zero_shot_classification.OUTPUTS
EXAMPLES: tuple[tuple[str, Example], ...] = tuple(
    (f"labels_{number}", {LABELS: labels})
    for number, labels in enumerate(
        (
            ("a cat", "a dog", "two people at a table"),
            ("landscape",),
            ("Häuser am See", "寿司", "a much longer label than all the others, with many words in it", "🗼"),
            ("red", "green"),
        )
    )
)
ONE_RUN = "the image tower is in the same graph, and groups of labels would run it again"


def fits(source: Source) -> bool:
    """Both towers are in the graph, which compares them, and files describe both inputs."""
    described = source.tokenizer is not None and source.preprocessor is not None
    scores = source.signature.output(SCORES)
    return vision.towers(source.signature) and described and scores is not None and len(scores.dims) == 2


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """The similarity of each image to its own labels from the graph; shares and order after it."""
    if not fits(source):
        if vision.towers(source.signature):
            vision.check_files(source)
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{NAME} needs a graph that takes input_ids and pixel_values and gives {SCORES} [images, texts]"
            f"; its outputs are {head_output.shown(source)}",
            where=str(source.path),
            remedy=f"export it for {NAME} (optimum-cli export onnx --task {NAME}), or use --task tensor",
        )
    if not source.config.get("model_type"):
        raise TrbError(
            Code.TASK_UNCLEAR,
            "no config.json names its model_type: CLIP takes a softmax of all labels, SigLIP a sigmoid",
            where=str(source.path),
            remedy="put the model's own config.json beside it",
        )
    task.need_logits(source, SCORES, NAME)
    hypothesis = HYPOTHESIS if options.hypothesis_template is None else options.hypothesis_template
    zero_shot_classification.check_template(hypothesis, HYPOTHESIS)
    each = str(source.config.get("model_type", "")).startswith("siglip")
    return TaskPlan(
        name=NAME,
        head=Head(
            text=towers.similarity(),
            bind={"logits": SCORES, "places": tensor_names.CHUNK_INDEX},
        ),
        outputs=(TensorPlan(name=tensor_names.LOGITS, data_type="TYPE_FP32", dims=(-1,)),),
        reference=task.by_answer,
        texts=(TextInput(name=LABELS, several=True),),
        encoding=Encoding(
            chunks="rows", one_run=ONE_RUN, parameters=(("hypothesis", hypothesis), task.most_rows(options))
        ),
        post=Postprocess(
            module="zero_shot_classification.py",
            inputs=(LABELS, tensor_names.LOGITS),
            outputs=OUTPUTS,
            parameters=(("multi_label", "true" if each else "false"),),
        ),
        examples=EXAMPLES,
        encode=_encoder(hypothesis),
        answer=_reference(each),
        facts=(("hypothesis_template", hypothesis), ("activation", "sigmoid" if each else "softmax")),
    )


def _encoder(hypothesis: str) -> Any:
    def encode(tokenizer: Any, example: Example, limit: int | None) -> list[Encoded]:
        return [
            dict(
                tokenizer(
                    hypothesis.format(label),
                    truncation=limit is not None,
                    max_length=limit,
                    return_token_type_ids=True,
                )
            )
            for label in example[LABELS]
        ]

    return encode


def _reference(each: bool) -> Any:
    def answer(run: OriginalRun) -> dict[str, npt.NDArray[Any]]:
        values = run.outputs[SCORES][0].astype(np.float64)
        scores = reference.sigmoid(values) if each else reference.softmax(values)
        candidates = run.example[LABELS]
        order = sorted(range(len(candidates)), key=lambda place: -scores[place])
        return {
            "labels": np.array([[candidates[place].encode() for place in order]], dtype=object),
            "scores": scores[order][None].astype(np.float32),
        }

    return answer
