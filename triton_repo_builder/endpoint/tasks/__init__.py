"""The tasks, in the order in which a guess tries them."""

from __future__ import annotations

import shlex
from dataclasses import fields

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks import (
    audio_classification,
    embedding,
    fill_mask,
    image_classification,
    image_embedding,
    late_interaction,
    object_detection,
    question_answering,
    rerank,
    semantic_segmentation,
    sparse_embedding,
    speech_recognition,
    tensor,
    text_classification,
    token_classification,
    unsupported,
    zero_shot_classification,
    zero_shot_image_classification,
)
from triton_repo_builder.endpoint.tasks.support import audio, head_output, saved_modules, vision
from triton_repo_builder.endpoint.tasks.task import TEXT_INPUTS, Kind, Task, architecture, takes_text
from triton_repo_builder.model.read import input_constants, input_names, timm_config, ultralytics
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.model.read.source import Source

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
        object_detection,
        semantic_segmentation,
        image_classification,
        image_embedding,
        zero_shot_image_classification,
        audio_classification,
        speech_recognition,
        tensor,
    )
}
TOKENIZED = (Kind.TEXT, Kind.IMAGE_AND_TEXT)
KIND_OPTIONS = {
    "tokenizer": TOKENIZED,
    "input": TOKENIZED,
    "max_length": TOKENIZED,
    "max_text_bytes": TOKENIZED,
    "run_tokens": (Kind.TEXT,),
    "tokenizer_cache": (Kind.TEXT,),
    "reference": (Kind.TEXT,),
    "padding": TOKENIZED,
    "raw_output": (Kind.TEXT, Kind.TENSOR),
    "preprocessor": (Kind.IMAGE, Kind.IMAGE_AND_TEXT, Kind.AUDIO),
    "pillow_wheel": (Kind.IMAGE, Kind.IMAGE_AND_TEXT),
}
"""Options that apply to some kinds of endpoint only."""
DEFAULTS = {field.name: field.default for field in fields(BuildOptions)}


def check_options(options: BuildOptions, task: Task, common: frozenset[str], guess: str) -> None:
    """``TrbError`` USAGE for an option that this task would ignore, unless it is set for many models.

    ``guess`` is why the task was chosen, if the user did not choose it.
    """
    task_options = dict.fromkeys(field for other in TASKS.values() for field in other.OPTIONS)
    unused = [field for field in task_options if field not in task.OPTIONS]
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
    from triton_repo_builder.model.read import tokenizer

    if name is not None and name not in TASKS:
        raise TrbError(
            Code.USAGE, f"'{name}' is unknown", where="--task", remedy=f"use one of {', '.join(TASKS)}"
        )
    text = takes_text(source.signature)
    if name == tensor.NAME:
        return tensor, ""
    unsupported.refuse(source, name)
    if (chosen := _audio_task(source, name) or _image_task(source, name)) is not None:
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
                remedy=_filling(source.signature),
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
        return tensor, _unfilled(source) or _beside_files(source)
    if source.tokenizer is None:
        return (
            tensor,
            "no tokenizer.json beside the model: served as plain tensors (name one with --tokenizer)",
        )
    return _fitting(source, Kind.TEXT) or (
        tensor,
        _headless(source, tensor) or _unknown(source),
    )


def _unknown(source: Source) -> str:
    """The note on a text model of no known task."""
    if "id2label" in source.config and not source.config.get("architectures"):
        named = "text-classification, for a label of each token token-classification"
        return f"config.json names labels and no architecture: served as plain tensors (--task {named})"
    return "no task is known for this model: served as plain tensors (--task names one)"


def _fitting(source: Source, kind: Kind) -> tuple[Task, str] | None:
    """The first task of this kind that fits, and the reason if it is a guess; None if none does."""
    task = next((task for task in TASKS.values() if task.KIND is kind and task.fits(source)), None)
    if task is None:
        return None
    if saved_modules.modules(source):
        return task, ""
    if headless := _headless(source, task):
        return task, headless
    stated = source.config.get("architectures") or timm_config.settings(source.config)
    sure = bool(stated) or vision.export(source) is not None
    guess = f"task '{task.NAME}' is a guess from the model's files; --task overrides it"
    return task, "" if sure else guess


def _headless(source: Source, task: Task) -> str:
    """The head that config.json names and the graph does not have; empty if it has the head."""
    sound = audio.sounds(source)
    for other in TASKS.values():
        name = architecture(source, *other.ARCHITECTURES)
        if (other.KIND is Kind.AUDIO) != sound:
            continue  # transformers calls a classifier of texts and one of audio alike
        if name and other.ARCHITECTURES != task.ARCHITECTURES and not other.fits(source):
            return (
                f"config.json names {name}, and the graph does not have its head (outputs: "
                f"{head_output.shown(source)}): task '{task.NAME}'; for {other.NAME} export it with "
                f"optimum-cli export onnx --task {other.NAME}"
            )
    return ""


def _filling(signature: ModelSignature) -> str:
    """The remedy for inputs that a tokenizer cannot fill."""
    unknown = [spec.name for spec in signature.inputs if spec.name not in TEXT_INPUTS]
    if signature.input("input_ids") is not None and (option := input_constants.hint(signature)):
        return f"give it once, {option}, or use --task tensor"
    if not input_names.looks_like_text(signature) or signature.input("input_ids") is not None:
        return "a text model takes input_ids and attention_mask, [batch, tokens]; use --task tensor"
    if foreign := _foreign(signature):
        return f"export the model without {foreign}, which is not [batch, tokens], or use --task tensor"
    others = ", ".join(name for name in TEXT_INPUTS if name != "input_ids")
    example = shlex.quote(f"input_ids={unknown[0]}")
    return f"name each, e.g. --input {example} (the others are {others}), or use --task tensor"


def _unfilled(source: Source) -> str:
    """Why a text model is served as tensors; empty for other models."""
    signature = source.signature
    if source.tokenizer is None or not input_names.looks_like_text(signature):
        return ""
    if signature.input("input_ids") is None:
        return _unnamed(signature)
    names = [f"'{spec.name}'" for spec in signature.inputs if spec.name not in TEXT_INPUTS]
    once = f" ({option} gives it once)" if (option := input_constants.hint(signature)) else ""
    return (
        f"a tokenizer cannot fill its input {', '.join(names)}: served as plain tensors{once}"
        if names
        else ""
    )


def _beside_files(source: Source) -> str:
    """Why a model of images or sounds is served as tensors: it takes a number, too. Empty for others."""
    option, rest = input_constants.hint(source.signature), input_constants.without(source.signature)
    taken = vision.image_input(rest) or audio.audio_input(rest)
    if not option or taken is None or source.preprocessor is None:
        return ""
    return f"'{taken.name}' is not its only input: served as plain tensors ({option} gives the other once)"


def _foreign(signature: ModelSignature) -> str:
    """Inputs that are not rows of tokens, whatever they are called."""
    return ", ".join(f"'{spec.name}'" for spec in signature.inputs if not input_names.is_row(spec))


def _unnamed(signature: ModelSignature) -> str:
    """Which inputs cannot be told by their names, and the options that name them.

    One of them is guessed and no more: pasted, two guesses that are the wrong way round would answer wrongly.
    """
    if foreign := _foreign(signature):
        return f"a tokenizer cannot fill {foreign}, not [batch, tokens]: served as plain tensors"
    usual_names = input_names.recognised_inputs(signature)
    unknown = [spec.name for spec in signature.inputs if spec.name not in usual_names]
    free = [usual for usual in TEXT_INPUTS if usual not in usual_names.values()]
    listed = ", ".join(f"'{name}'" for name in unknown)
    if "input_ids" not in usual_names.values():
        reason = f"more than one of {listed} could be the token ids"
    else:
        reason = f"it is not known what {listed} is for, which may be {' or '.join(free)}"
    served = f"{reason}: served as plain tensors"
    if any("pad" in name.lower() for name in unknown):
        return f"{served} (a mask that is 1 for padding is no attention_mask: export it the other way round)"
    named = [*((usual, name) for name, usual in usual_names.items()), *zip(free, unknown[:1], strict=False)]
    shown = " ".join(f"--input {shlex.quote(f'{usual}={name}')}" for usual, name in named)
    return f"{served} (for texts name each, e.g. {shown})"


def _audio_task(source: Source, name: str | None) -> tuple[Task, str] | None:
    """The task of an audio model and why, as ``choose`` gives them; None for other models."""
    if name is not None:
        task = TASKS[name]
        if task.KIND is not Kind.AUDIO:
            return None
        audio.check(source, name)
        return task, ""
    if audio.sounds(source):
        neither = "no known task of audio fits its outputs: served as plain tensors"
        return _fitting(source, Kind.AUDIO) or (tensor, _headless(source, tensor) or neither)
    why = _beside_files(source) or audio.unserved(source)
    return (tensor, why) if why else None


OBJECTNESS = (
    "it is of YOLOv5's own exporter, and no task of trb reads its boxes, which have an objectness: served as "
    "plain tensors"
)


def _image_task(source: Source, name: str | None) -> tuple[Task, str] | None:
    """The task of an image model and why, as ``choose`` gives them; None for other models."""
    if name is not None:
        task = TASKS[name]
        if task.KIND is Kind.IMAGE_AND_TEXT:
            return task, ""
        if task.KIND is not Kind.IMAGE:
            return None
        vision.check(source, name)
        return task, ""
    if fitting := _fitting(source, Kind.IMAGE_AND_TEXT):
        return fitting
    vision.check_towers(source)
    if vision.images(source):
        files = "" if source.config else ", and no config.json names its labels"
        neither = f"no known task of images fits its outputs{files}: served as plain tensors"
        return _fitting(source, Kind.IMAGE) or (tensor, _headless(source, tensor) or neither)
    pixels = vision.image_input(source.signature)
    if pixels is not None and (other := ultralytics.export(source.signature.metadata, source.path)):
        return tensor, f"no task of trb is Ultralytics' '{other.task}': served as plain tensors"
    if pixels is not None and ultralytics.older(source.signature.metadata):
        return tensor, OBJECTNESS
    if pixels is not None and vision.layout(pixels) == "NHWC":
        return tensor, (
            f"'{pixels.name}' {_axes(pixels)} looks like images with the channels last: served as plain "
            "tensors, which clients send in that order; to take image files, describe their preprocessing "
            "in a preprocessor_config.json (--preprocessor; docs/images.md)"
        )
    if pixels is not None and pixels.name == vision.NAME:
        return tensor, "no preprocessor_config.json (--preprocessor names one): served as plain tensors"
    return None


def _axes(spec: TensorSpec) -> str:
    """``[N, 224, 224, 3]``."""
    rows, *rest = spec.dims
    sizes = ("N" if rows < 0 else str(rows), *("?" if size < 0 else str(size) for size in rest))
    return f"[{', '.join(sizes)}]"
