"""Audio classification: logits → the best labels by name with their scores, in the graph."""

from __future__ import annotations

from triton_repo_builder.endpoint.tasks import image_classification
from triton_repo_builder.endpoint.tasks.support import audio, head_output
from triton_repo_builder.endpoint.tasks.task import Kind, TaskPlan, architecture
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.source import Source

NAME = "audio-classification"
KIND = Kind.AUDIO
OPTIONS = ("top_k", "labels")
ARCHITECTURES = ("ForSequenceClassification",)


def fits(source: Source) -> bool:
    """It takes samples, and config.json names the architecture, or no other and labels."""
    if not audio.sounds(source) or head_output.find_labels(source, 2) is None:
        return False
    named = bool(source.config.get("architectures"))
    return bool(architecture(source, *ARCHITECTURES)) if named else bool(head_output.id2label(source.config))


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Labels and activation as for images: transformers' two pipelines have the same rules."""
    audio.check(source, NAME)
    return image_classification.best_labels(source, options, NAME)
