"""Which task an endpoint answers, by the names of its inputs and outputs (docs/tasks.md)."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.repository.interface import Endpoint

EMBEDDING = "embedding"
RERANK = "rerank"
CLASSIFICATION = "text-classification"
ENTITIES = "token-classification"
QUESTION_ANSWERING = "question-answering"
FILL_MASK = "fill-mask"
ZERO_SHOT = "zero-shot-classification"
SPARSE = "sparse-embedding"
LATE_INTERACTION = "late-interaction"
IMAGE_CLASSIFICATION = "image-classification"
IMAGE_EMBEDDING = "image-embedding"
OBJECT_DETECTION = "object-detection"
SEGMENTATION = "semantic-segmentation"
ZERO_SHOT_IMAGE = "zero-shot-image-classification"
AUDIO_CLASSIFICATION = "audio-classification"
SPEECH = "automatic-speech-recognition"


@dataclass(frozen=True)
class Signature:
    """Inputs that every request has, and outputs, of the endpoints of one task."""

    task: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


SIGNATURES = (
    Signature(RERANK, ("QUERY", "DOCUMENT"), ("score",)),
    Signature(QUESTION_ANSWERING, ("QUESTION", "CONTEXT"), ("answer", "start", "end", "score")),
    Signature(ZERO_SHOT, ("TEXT", "LABELS"), ("labels", "scores")),
    Signature(ZERO_SHOT_IMAGE, ("IMAGE", "LABELS"), ("labels", "scores")),
    Signature(ENTITIES, ("TEXT",), ("start", "end", "label", "score", "text")),
    Signature(FILL_MASK, ("TEXT",), ("tokens", "scores", "ids")),
    Signature(SPARSE, ("TEXT",), ("indices", "values")),
    Signature(LATE_INTERACTION, ("TEXT",), ("token_embeddings", "mask")),
    Signature(CLASSIFICATION, ("TEXT",), ("label", "score", "scores")),
    Signature(EMBEDDING, ("TEXT",), ("embedding",)),
    Signature(IMAGE_EMBEDDING, ("IMAGE",), ("embedding",)),
    Signature(OBJECT_DETECTION, ("IMAGE",), ("boxes", "labels", "scores", "count")),
    Signature(SEGMENTATION, ("IMAGE",), ("label_map", "labels", "label_ids", "shares")),
    Signature(IMAGE_CLASSIFICATION, ("IMAGE",), ("label", "score", "top_labels", "top_scores")),
    Signature(AUDIO_CLASSIFICATION, ("AUDIO",), ("label", "score")),
    Signature(SPEECH, ("AUDIO",), ("text",)),
)
BY_TASK = {signature.task: signature for signature in SIGNATURES}


def task(endpoint: Endpoint) -> str:
    """The task whose inputs and outputs the endpoint has; empty if there is none."""
    inputs = {tensor.name for tensor in endpoint.needed}
    outputs = {tensor.name for tensor in endpoint.outputs}
    return next((s.task for s in SIGNATURES if inputs == set(s.inputs) and set(s.outputs) <= outputs), "")
