"""PyTorch weights in a folder that ``save_pretrained`` wrote: which files, and what the model is for."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.model.read import foreign, hub_files, weight_files
from triton_repo_builder.model.read.foreign import EXPORTED, FEATURES, TOWERS

GENERATING = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSpeechSeq2Seq", "ForVision2Seq")
ENCODERS = ("Model", "ModelWithProjection", "DPRQuestionEncoder", "DPRContextEncoder")
"""Ends of the names of architectures without a head for a task."""
LISTED = 5


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The weights of a model, and the task that they are converted for."""

    folder: Path
    files: tuple[str, ...]
    """Names of the files of weights, and of their index."""
    companions: tuple[str, ...]
    """Files that a build reads beside the graph."""
    task: str
    """The exporter's name."""
    stated_class: str
    """The architecture of config.json if it is for this task; else empty."""


def find(folder: Path, task: str | None) -> Weights:
    """The weights in a folder. Raises ``TrbError``."""
    if not folder.is_dir():
        if folder.exists():
            message, remedy = "this is a file", "name the folder with config.json and the weights"
        else:
            message, remedy = "no such folder", "check the path; a model on the Hub is hf://ORG/NAME"
        raise TrbError(Code.NOT_FOUND, message, where=str(folder), remedy=remedy)
    config = weight_files.config(folder)
    listed = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if files.is_file(file))
    modules = hub_files.modules(folder)
    needed = weight_files.names(listed, weight_files.index(folder), str(folder))
    for name in needed:
        containment.check_within(folder, folder / name)
        with files.opened(folder / name) as opened:
            if files.is_lfs_pointer(opened.read(len(files.LFS_POINTER))):
                raise TrbError(
                    Code.LFS_POINTER,
                    f"{name} is a pointer of git-lfs, not the weights",
                    where=str(folder),
                    remedy=f"git -C {shlex.quote(str(folder))} lfs pull",
                )
    _refuse_own_code(config, folder)
    chosen, stated = purpose(config, modules.values(), task, str(folder))
    companions = hub_files.companions(listed, "model.onnx", modules)
    return Weights(
        folder=folder,
        files=needed,
        companions=tuple(name for name in companions if name not in needed),
        task=chosen,
        stated_class=stated,
    )


def purpose(
    config: Mapping[str, Any], modules: Collection[str], task: str | None, where: str
) -> tuple[str, str]:
    """The task, and the class of transformers if config.json's is for it. Raises ``TrbError``."""
    listed = config.get("architectures")
    stated = str(listed[0]) if isinstance(listed, list) and listed else ""
    implied = _implied(stated, config)
    if task is None and modules:  # the layers after the model are sentence-transformers' own
        task = "fill-mask" if "MLMTransformer" in modules else FEATURES
    if task is None and stated.endswith(GENERATING):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"{stated} generates text: trb builds no text generation",
            where=where,
            remedy=f"serve it with vLLM or TensorRT-LLM; --task {FEATURES} converts it without its head",
        )
    if task is None and not implied:
        named = f"the architecture {stated}" if stated else "config.json, which names no architecture,"
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{named} does not say what the model is for",
            where=where,
            remedy=f"name it, if transformers has this architecture: --task, one of {', '.join(EXPORTED)}",
        )
    chosen = task or implied
    return chosen, stated if chosen == implied else ""


def _implied(stated: str, config: Mapping[str, Any]) -> str:
    """The task of an architecture; empty if its name says none."""
    task = foreign.head_task(stated, config)
    if task or not stated.endswith(ENCODERS):
        return task
    return TOWERS if {"text_config", "vision_config"} <= config.keys() else FEATURES


def _refuse_own_code(config: Mapping[str, Any], folder: Path) -> None:
    """``TrbError`` if a model's architecture is Python code in its own folder."""
    stated = config.get("auto_map")
    if not stated:
        return
    from triton_repo_builder.model.read import transformers_library

    if config.get("model_type") in transformers_library.load().CONFIG_MAPPING:
        return
    code = sorted({str(value).split(".")[0] for value in stated.values()} if isinstance(stated, dict) else [])
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        f"this model needs code of its own (auto_map in config.json: {some(code, LISTED) or 'files'}), "
        "which trb never runs",
        where=str(folder),
        remedy="take an ONNX file that its author wrote, or export it yourself where you trust that code, "
        "and build that",
    )
