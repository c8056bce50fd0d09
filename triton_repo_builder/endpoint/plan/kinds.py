"""The kinds of endpoints."""

from __future__ import annotations

from triton_repo_builder.endpoint.plan import audio, image, image_and_text, tensor, text
from triton_repo_builder.endpoint.plan.endpoint import EndpointKind
from triton_repo_builder.endpoint.tasks.task import Kind

KINDS: dict[Kind, EndpointKind] = {
    Kind.TEXT: text,
    Kind.IMAGE: image,
    Kind.IMAGE_AND_TEXT: image_and_text,
    Kind.AUDIO: audio,
    Kind.TENSOR: tensor,
}
