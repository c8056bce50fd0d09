"""The tasks, in the order in which a guess tries them."""

from __future__ import annotations

from types import ModuleType

from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.source import Source
from triton_repo_builder.tasks import (
    embedding,
    fill_mask,
    generation,
    question_answering,
    rerank,
    tensor,
    text_classification,
    token_classification,
    zero_shot_classification,
)
from triton_repo_builder.tasks.base import takes_text

TASKS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        rerank,
        text_classification,
        zero_shot_classification,
        token_classification,
        question_answering,
        fill_mask,
        embedding,
        tensor,
    )
}


def choose(source: Source, wanted: str | None) -> tuple[ModuleType, str]:
    """The task's module, and the reason where it was a guess. Raises ``TrbError``."""
    from triton_repo_builder import tokenizer

    if wanted is not None and wanted not in TASKS:
        raise TrbError(
            Exit.USAGE, f"'{wanted}' is unknown", where="--task", remedy=f"use one of {', '.join(TASKS)}"
        )
    text = takes_text(source.signature)
    if wanted == tensor.NAME:
        return tensor, ""
    generation.refuse(source, wanted)
    if text and source.tokenizer is None and (sign := tokenizer.slow_only(source.path.parent)):
        raise tokenizer.slow_error(source.path.parent, sign)
    if wanted is not None:
        if not text:
            names = ", ".join(spec.name for spec in source.signature.inputs)
            raise TrbError(
                Exit.TASK_UNCLEAR,
                f"a tokenizer cannot fill its inputs ({names})",
                where=str(source.path),
                remedy="a text model takes input_ids and attention_mask; use --task tensor",
            )
        if source.tokenizer is None:
            raise TrbError(
                Exit.NOT_FOUND,
                "no tokenizer.json beside the model",
                where=str(source.path.parent),
                remedy="name one with --tokenizer",
            )
        return TASKS[wanted], ""
    if not text:
        return tensor, ""
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
