"""The parts of an image endpoint: IMAGE, a file's bytes, through a preprocessing model to the graph."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import Any

from triton_repo_builder import resources
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import File
from triton_repo_builder.golden import image, original
from triton_repo_builder.golden.cases import CaseFile
from triton_repo_builder.plan import onnx_model
from triton_repo_builder.plan.defaults import Setting, Settings
from triton_repo_builder.plan.model import (
    InstanceGroup,
    ModelPlan,
    RepositoryPlan,
    Step,
    TensorPlan,
    WarmupInput,
    about_model,
    between,
    joining,
)
from triton_repo_builder.plan.text import PLACEHOLDER
from triton_repo_builder.read import image_processor
from triton_repo_builder.read.image_processor import ImageSpec
from triton_repo_builder.read.options import BuildOptions
from triton_repo_builder.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.read.source import Source
from triton_repo_builder.releases import Release
from triton_repo_builder.render import vendor_pillow
from triton_repo_builder.tasks.support import vision
from triton_repo_builder.tasks.task import TaskPlan

INPUT = image.INPUT
SETTINGS_FILE = "preprocess.json"
SAMPLE = "image"
"""The file of the warm-up sample."""
JOIN = "images of any size join: IMAGE has a fixed shape, and so have the pixels"

DECODING = "as many as of the model: reading a large photo takes as long as a small model"


@dataclass(frozen=True, kw_only=True)
class ImageParts:
    """What an image endpoint consists of, besides what every model has."""

    plan: RepositoryPlan
    cases: CaseFile | None
    files: tuple[File, ...]
    facts: tuple[tuple[str, Any], ...]
    notes: tuple[str, ...]
    not_batchable: str
    """Why the recorded answers forbid batching although the graph allows it; empty else."""
    settings: Settings
    """As they came to be."""


def parts(
    src: Source,
    task: TaskPlan,
    options: BuildOptions,
    name: str,
    chosen: Settings,
    release: Release,
    *,
    batching: bool,
    runner: original.Original | None,
) -> ImageParts:
    """Decide and record everything for an image endpoint. Raises ``TrbError``."""
    assert src.preprocessor is not None
    spec = image_processor.read(src.preprocessor)
    pixels = src.signature.inputs[0]
    layout = vision.layout(pixels)
    dims = _dims(spec, pixels, layout)
    recorded, not_batchable = None, ""
    if runner is not None:
        recorded = image.record(runner, src, task, spec, layout, name, batching=batching)
        if batching and not recorded.batchable:
            not_batchable, batching = recorded.note, False
            recorded = image.record(runner, src, task, spec, layout, name, batching=False)
    chosen = chosen.carrying("images")
    if options.tokenizer_instances is None:
        decoders = Setting(value=chosen.instances.value, reason=DECODING)
        chosen = replace(chosen, tokenizer_instances=decoders)
    if not batching:
        chosen = chosen.unbatched(not_batchable or src.signature.batch.reason)
    made = plan(name, src.signature, task, options, chosen, dims, batching=batching)
    root = f"{made.models[1].name}/{options.version}"
    settings = spec.settings(layout)
    vendored = vendor_pillow.pillow(f"{root}/vendor", release.python, options.pillow_wheel)
    files = [
        File(path=f"{root}/model.py", content=resources.runtime("image.py").read_bytes()),
        File(path=f"{root}/image_pixels.py", content=resources.runtime("image_pixels.py").read_bytes()),
        File(path=f"{root}/{SETTINGS_FILE}", content=(json.dumps(settings, indent=1) + "\n").encode()),
        File(path=f"{name}/{options.version}/.gitkeep", content=PLACEHOLDER),
        *vendored,
    ]
    if options.warmup:
        data = next(iter(image.images().values()))
        content = struct.pack("<I", len(data)) + data
        files.append(File(path=f"{made.models[1].name}/warmup/{SAMPLE}", content=content))
    return ImageParts(
        plan=made,
        cases=recorded.file if recorded else None,
        files=tuple(files),
        facts=_facts(spec),
        notes=tuple(filter(None, [vendor_pillow.unlike(vendored)])),
        not_batchable=not_batchable,
        settings=chosen,
    )


def _dims(spec: ImageSpec, pixels: TensorSpec, layout: str) -> tuple[int, ...]:
    """Shape of one image's pixels. ``TrbError`` where it is not fixed, or not what the graph takes."""
    if spec.size is None:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "images keep their shape (resized by an edge, not cropped), so no two of them make a batch",
            where=str(spec.file),
            remedy="write a crop_size into it, or a size of height and width, that suits the model",
        )
    dims = (3, *spec.size) if layout == "NCHW" else (*spec.size, 3)
    stated = pixels.dims[1:]
    if any(want not in (-1, have) for want, have in zip(stated, dims, strict=True)):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"makes images of {list(dims)}, the model's input '{pixels.name}' is {list(stated)}",
            where=str(spec.file),
            remedy=f"use this model's own {image_processor.FILE}, or export for images of that size",
        )
    return dims


def _facts(spec: ImageSpec) -> tuple[tuple[str, Any], ...]:
    size = spec.size or (0, 0)
    return (
        ("preprocessor", spec.kind or spec.file.name),
        ("image_size", [size[0], size[1]]),
    )


def plan(
    name: str,
    signature: ModelSignature,
    task: TaskPlan,
    options: BuildOptions,
    chosen: Settings,
    dims: tuple[int, ...],
    *,
    batching: bool,
) -> RepositoryPlan:
    """IMAGE → answer: an ensemble of a preprocessing model and the model with its head.

    ``dims`` is the shape of one image's pixels.
    """
    pixels = signature.inputs[0]
    outputs = tuple(
        onnx_model.whole(tensor, batching, onnx_model.rows(signature, task)) for tensor in task.outputs
    )
    rows = dims if batching else (pixels.dims[0], *dims)
    preprocess = _preprocess(
        f"{name}_preprocess",
        TensorPlan(name=pixels.name, data_type=pixels.dtype.config, dims=rows),
        options,
        chosen,
        batching=batching,
    )
    model = onnx_model.onnx_model(
        f"{name}_model",
        about_model(front=False, head=task.head is not None),
        preprocess.output,
        outputs,
        options,
        chosen,
        max_batch_size=preprocess.max_batch_size,
        batching=batching,
        warmup=(
            WarmupInput(name=pixels.name, data_type=pixels.dtype.config, dims=tuple(max(1, d) for d in rows)),
        )
        if options.warmup
        else (),
    )
    inner = between(pixels.name, (INPUT, *(plan.name for plan in outputs)))
    ensemble = ModelPlan(
        name=name,
        about=f"Endpoint ({task.name}): {INPUT} in, {', '.join(plan.name for plan in outputs)} out.",
        max_batch_size=preprocess.max_batch_size,
        input=preprocess.input,
        output=outputs,
        response_cache=options.response_cache,
        step=(
            Step(
                model_name=preprocess.name,
                input_map=((INPUT, INPUT),),
                output_map=((pixels.name, inner),),
            ),
            Step(
                model_name=model.name,
                input_map=((pixels.name, inner),),
                output_map=tuple((plan.name, plan.name) for plan in outputs),
            ),
        ),
    )
    return RepositoryPlan(
        task=task.name, models=(ensemble, preprocess, model), version=options.version, notes=task.notes
    )


def _preprocess(
    name: str, output: TensorPlan, options: BuildOptions, chosen: Settings, *, batching: bool
) -> ModelPlan:
    instances = chosen.tokenizer_instances
    size = int(chosen.max_batch_size.value) if batching else 0
    sample = WarmupInput(name=INPUT, data_type="TYPE_STRING", dims=(1,), input_data_file=SAMPLE)
    return ModelPlan(
        name=name,
        about="Preprocessing: image files to pixels, as preprocessor_config.json says.",
        backend="python",
        max_batch_size=size,
        input=(TensorPlan(name=INPUT, data_type="TYPE_STRING", dims=(1,)),),
        output=(output,),
        dynamic_batching=joining(size),
        instance_group=InstanceGroup(count=int(instances.value), kind=onnx_model.CPU),
        reasons=(("instances", instances.reason), ("batching", JOIN)),
        warmup=(sample,) if options.warmup else (),
    )
