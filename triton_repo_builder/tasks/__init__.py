"""The tasks, in the order in which a guess tries them."""

from __future__ import annotations

from types import ModuleType

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks import (
    embedding,
    fill_mask,
    image_classification,
    image_embedding,
    late_interaction,
    question_answering,
    rerank,
    sparse_embedding,
    tensor,
    text_classification,
    token_classification,
    unsupported,
    zero_shot_classification,
)
from triton_repo_builder.tasks.support import vision
from triton_repo_builder.tasks.task import TEXT_INPUTS, takes_text

IMAGE_TASKS = (image_classification, image_embedding)
TASKS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        late_interaction,
        sparse_embedding,
        rerank,
        text_classification,
        zero_shot_classification,
        token_classification,
        question_answering,
        fill_mask,
        embedding,
        *IMAGE_TASKS,
        tensor,
    )
}


def choose(source: Source, wanted: str | None) -> tuple[ModuleType, str]:
    """The task's module, and the reason where it was a guess. Raises ``TrbError``."""
    from triton_repo_builder.read import tokenizer

    if wanted is not None and wanted not in TASKS:
        raise TrbError(
            Code.USAGE, f"'{wanted}' is unknown", where="--task", remedy=f"use one of {', '.join(TASKS)}"
        )
    text = takes_text(source.signature)
    if wanted == tensor.NAME:
        return tensor, ""
    unsupported.refuse(source, wanted)
    if (chosen := _image_task(source, wanted)) is not None:
        return chosen
    if text and source.tokenizer is None and (sign := tokenizer.slow_only(source.path.parent)):
        raise tokenizer.slow_error(source.path.parent, sign)
    if wanted is not None:
        if not text:
            names = ", ".join(spec.name for spec in source.signature.inputs)
            raise TrbError(
                Code.TASK_UNCLEAR,
                f"a tokenizer cannot fill its inputs ({names})",
                where=str(source.path),
                remedy="a text model takes input_ids and attention_mask; use --task tensor",
            )
        if source.tokenizer is None:
            raise TrbError(
                Code.NOT_FOUND,
                "no tokenizer.json beside the model",
                where=str(source.path.parent),
                remedy="name one with --tokenizer",
            )
        return TASKS[wanted], ""
    if not text:
        return tensor, _unfilled(source)
    if source.tokenizer is None:
        return (
            tensor,
            "no tokenizer.json beside the model: served as plain tensors (name one with --tokenizer)",
        )
    for name, module in TASKS.items():
        if module is not tensor and module.fits(source):
            sure = bool(source.config.get("architectures")) or bool(embedding.modules(source))
            return (
                module,
                "" if sure else f"task '{name}' is a guess from the model's files; --task overrides it",
            )
    return tensor, "no task is known for this model: served as plain tensors"


def _unfilled(source: Source) -> str:
    """Why a model of text is served as tensors; empty for one that is none."""
    if source.tokenizer is None or source.signature.input("input_ids") is None:
        return ""
    names = [f"'{spec.name}'" for spec in source.signature.inputs if spec.name not in TEXT_INPUTS]
    return f"a tokenizer cannot fill its input {', '.join(names)}: served as plain tensors" if names else ""


def _image_task(source: Source, wanted: str | None) -> tuple[ModuleType, str] | None:
    """As ``choose``, for a model of images; None where it is none."""
    if wanted is not None:
        module = TASKS[wanted]
        if module not in IMAGE_TASKS:
            return None
        vision.check(source, wanted)
        return module, ""
    vision.check_towers(source)
    if vision.images(source):
        for module in IMAGE_TASKS:
            if module.fits(source):
                sure = bool(source.config.get("architectures"))
                guess = f"task '{module.NAME}' is a guess from the model's files; --task overrides it"
                return module, "" if sure else guess
        return tensor, "neither an image classifier nor an image embedding: served as plain tensors"
    found = vision.image_input(source.signature)
    if found is not None and found.name == vision.NAME:
        return tensor, "no preprocessor_config.json (--preprocessor names one): served as plain tensors"
    return None
