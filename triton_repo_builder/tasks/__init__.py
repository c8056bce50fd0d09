"""The tasks, in the order in which a guess tries them."""

from __future__ import annotations

from dataclasses import fields

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.read.options import BuildOptions, usage
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
from triton_repo_builder.tasks.task import TEXT_INPUTS, Kind, Task, takes_text

TASKS: dict[str, Task] = {
    task.NAME: task
    for task in (
        late_interaction,
        sparse_embedding,
        rerank,
        text_classification,
        zero_shot_classification,
        token_classification,
        question_answering,
        fill_mask,
        embedding,
        image_classification,
        image_embedding,
        tensor,
    )
}
KIND_OPTIONS = {
    "tokenizer": (Kind.TEXT,),
    "max_length": (Kind.TEXT,),
    "raw_output": (Kind.TEXT, Kind.TENSOR),
    "preprocessor": (Kind.IMAGE,),
    "pillow_wheel": (Kind.IMAGE,),
}
"""Options that apply to some kinds of endpoint only."""
DEFAULTS = {field.name: field.default for field in fields(BuildOptions)}


def check_options(options: BuildOptions, task: Task, common: frozenset[str], guess: str) -> None:
    """``TrbError`` USAGE for an option that this task would ignore, unless it is set for many models.

    ``guess`` is why the task was chosen, if the user did not choose it.
    """
    own = dict.fromkeys(field for other in TASKS.values() for field in other.OPTIONS)
    unused = [field for field in own if field not in task.OPTIONS]
    unused += [field for field, kinds in KIND_OPTIONS.items() if task.KIND not in kinds]
    for field in unused:
        if getattr(options, field) != DEFAULTS[field] and field not in common:
            reason = f" ({guess})" if guess else ""
            raise usage(
                field,
                f"does not apply to task {task.NAME}{reason}",
                "leave it out, or name another --task",
            )


def choose(source: Source, name: str | None) -> tuple[Task, str]:
    """The task, and the reason if it is a guess. Raises ``TrbError``."""
    from triton_repo_builder.read import tokenizer

    if name is not None and name not in TASKS:
        raise TrbError(
            Code.USAGE, f"'{name}' is unknown", where="--task", remedy=f"use one of {', '.join(TASKS)}"
        )
    text = takes_text(source.signature)
    if name == tensor.NAME:
        return tensor, ""
    unsupported.refuse(source, name)
    if (chosen := _image_task(source, name)) is not None:
        return chosen
    if text and source.tokenizer is None and (sign := tokenizer.slow_only(source.path.parent)):
        raise tokenizer.slow_error(source.path.parent, sign)
    if name is not None:
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
        return TASKS[name], ""
    if not text:
        return tensor, _unfilled(source)
    if source.tokenizer is None:
        return (
            tensor,
            "no tokenizer.json beside the model: served as plain tensors (name one with --tokenizer)",
        )
    for name, task in TASKS.items():
        if task.KIND is Kind.TEXT and task.fits(source):
            sure = bool(source.config.get("architectures")) or bool(embedding.modules(source))
            return (
                task,
                "" if sure else f"task '{name}' is a guess from the model's files; --task overrides it",
            )
    return tensor, "no task is known for this model: served as plain tensors"


def _unfilled(source: Source) -> str:
    """Why a text model is served as tensors; empty for other models."""
    if source.tokenizer is None or source.signature.input("input_ids") is None:
        return ""
    names = [f"'{spec.name}'" for spec in source.signature.inputs if spec.name not in TEXT_INPUTS]
    return f"a tokenizer cannot fill its input {', '.join(names)}: served as plain tensors" if names else ""


def _image_task(source: Source, name: str | None) -> tuple[Task, str] | None:
    """As ``choose``, for image models; None for others."""
    if name is not None:
        task = TASKS[name]
        if task.KIND is not Kind.IMAGE:
            return None
        vision.check(source, name)
        return task, ""
    vision.check_towers(source)
    if vision.images(source):
        for task in TASKS.values():
            if task.KIND is Kind.IMAGE and task.fits(source):
                sure = bool(source.config.get("architectures"))
                guess = f"task '{task.NAME}' is a guess from the model's files; --task overrides it"
                return task, "" if sure else guess
        return tensor, "neither an image classifier nor an image embedding: served as plain tensors"
    pixels = vision.image_input(source.signature)
    if pixels is not None and pixels.name == vision.NAME:
        return tensor, "no preprocessor_config.json (--preprocessor names one): served as plain tensors"
    return None
