"""Tasks of images and sounds as Hugging Face's pipelines answer them.

https://huggingface.co/docs/inference-providers/tasks
"""

from __future__ import annotations

import asyncio
from typing import Any

from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.call import Call, Reply, reply
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.masks import masks
from triton_repo_builder.run.gateway.refusal import invalid
from triton_repo_builder.run.gateway.routes.huggingface_fields import (
    candidate_labels,
    check_built,
    listed_files,
    parameters,
    top_k,
)
from triton_repo_builder.run.gateway.routes.huggingface_texts import scored
from triton_repo_builder.run.gateway.routes.tei_fields import Document, answered, endpoint
from triton_repo_builder.run.gateway.triton import Answer, Columns, joined, rows

BEST = ("top_labels", "top_scores")
OBJECT_OUTPUTS = ("boxes", "labels", "scores", "count")
CORNERS = ("xmin", "ymin", "xmax", "ymax")


@answered
async def image_feature_extraction(call: Call, document: Document) -> Reply:
    """Embeddings of images."""
    served = endpoint(call, document, recognition.IMAGE_EMBEDDING)
    parameters(document)
    files, _ = listed_files(document, call.gateway.options.most_items)
    return reply(joined(await call.infer(served, {"IMAGE": files}, ("embedding",)), "embedding"))


@answered
async def image_classification(call: Call, document: Document) -> Reply:
    """Labels of each image, best first."""
    return await _classification(call, document, recognition.IMAGE_CLASSIFICATION, "IMAGE")


@answered
async def audio_classification(call: Call, document: Document) -> Reply:
    """Labels of each sound, best first."""
    return await _classification(call, document, recognition.AUDIO_CLASSIFICATION, "AUDIO")


async def _classification(call: Call, document: Document, task: str, column: str) -> Reply:
    served = endpoint(call, document, task)
    stated = parameters(document, "function_to_apply", "top_k")
    check_built(stated, "function_to_apply", served, served.facts.get("activation"))
    outputs = {tensor.name: tensor for tensor in served.endpoint.outputs}
    several_labels = all(name in outputs for name in BEST)
    names = BEST if several_labels else ("label", "score")
    most = outputs[names[0]].shape[-1]
    # An endpoint that answers all its labels has no more, however many are wanted.
    limited = most > 0 and most != len(served.facts.get("labels", ()))
    count = top_k(stated, served, most if limited else None)
    files, several = listed_files(document, call.gateway.options.most_items)
    answers = rows(await call.infer(served, {column: files}, names))
    best = [scored(row, *names)[:count] for row in answers]
    return reply(best if several else best[0])


@answered
async def object_detection(call: Call, document: Document) -> Reply:
    """Objects of each image and their boxes, in whole pixels as the pipeline gives them."""
    served = endpoint(call, document, recognition.OBJECT_DETECTION)
    stated = parameters(document, "threshold")
    least = _threshold(stated, served)
    files, several = listed_files(document, call.gateway.options.most_items)
    answers = rows(await call.infer(served, {"IMAGE": files}, OBJECT_OUTPUTS))
    objects = [_objects(row, least) for row in answers]
    return reply(objects if several else objects[0])


def _threshold(stated: Document, served: Served) -> float | None:
    """The score that objects must exceed, at least the endpoint's own. Raises ``Refusal``."""
    value = stated.get("threshold")
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise invalid("`parameters.threshold` must be a number", "threshold")
    built = served.facts.get("score_threshold")
    if built is None or value < built:
        does = "is not known" if built is None else f"is {built}"
        raise invalid(
            f"`parameters.threshold`: the score threshold of '{served.name}' {does}, and it gives no objects "
            "below; build an endpoint with --score-threshold",
            "threshold",
        )
    return float(value)


def _objects(row: Answer, least: float | None) -> list[dict[str, Any]]:
    return [
        {
            "score": row["scores"][place],
            "label": row["labels"][place].decode(),
            "box": dict(zip(CORNERS, map(int, row["boxes"][place].tolist()), strict=True)),
        }
        for place in range(int(row["count"][0]))
        if least is None or row["scores"][place] > least
    ]


@answered
async def image_segmentation(call: Call, document: Document) -> Reply:
    """The mask of each label in an image, the largest area first."""
    served = endpoint(call, document, recognition.SEGMENTATION)
    check_built(parameters(document, "subtask"), "subtask", served, "semantic")
    files, several = listed_files(document, call.gateway.options.most_items)
    outputs = ("label_map", "labels", "label_ids")
    answers = rows(await call.infer(served, {"IMAGE": files}, outputs))
    segments = [await asyncio.to_thread(_segments, row) for row in answers]
    return reply(segments if several else segments[0])


def _segments(row: Answer) -> list[dict[str, Any]]:
    """Labels and masks of one image; a semantic map has no scores, so they are null as in the pipeline."""
    names = [label.decode() for label in row["labels"] if label]
    files = masks(row["label_map"][0], row["label_ids"][: len(names)].tolist())
    return [{"score": None, "label": label, "mask": mask} for label, mask in zip(names, files, strict=True)]


@answered
async def zero_shot_image_classification(call: Call, document: Document) -> Reply:
    """Labels that come with the request, best first."""
    served = endpoint(call, document, recognition.ZERO_SHOT_IMAGE)
    stated = parameters(document, "candidate_labels", "hypothesis_template")
    check_built(stated, "hypothesis_template", served, served.facts.get("hypothesis_template"))
    candidates = candidate_labels(stated)
    files, several = listed_files(document, call.gateway.options.most_items)
    columns: Columns = {"IMAGE": files, "LABELS": [candidates] * len(files)}
    answers = [scored(row) for row in rows(await call.infer(served, columns, ("labels", "scores")))]
    return reply(answers if several else answers[0])


@answered
async def automatic_speech_recognition(call: Call, document: Document) -> Reply:
    """The text of each sound."""
    served = endpoint(call, document, recognition.SPEECH)
    check_built(parameters(document, "return_timestamps"), "return_timestamps", served, False)
    files, several = listed_files(document, call.gateway.options.most_items)
    heard = joined(await call.infer(served, {"AUDIO": files}, ("text",)), "text").reshape(-1)
    answers = [{"text": text.decode()} for text in heard]
    return reply(answers if several else answers[0])
