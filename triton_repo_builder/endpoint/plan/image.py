"""Image endpoints: IMAGE, a file's bytes, through a preprocessing model to the graph.

A head that answers in pixels of the image itself gets its size from the preprocessing.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import Any

from triton_repo_builder.base import resources
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.golden import image as golden
from triton_repo_builder.endpoint.golden import media
from triton_repo_builder.endpoint.golden.original import OriginalModel, Recording
from triton_repo_builder.endpoint.plan import defaults, preprocessed
from triton_repo_builder.endpoint.plan.defaults import ModelFacts
from triton_repo_builder.endpoint.plan.endpoint import (
    PLACEHOLDER,
    EndpointPlan,
    PlanRequest,
    Vendored,
    measured_obstacle,
    not_batched,
    postprocess_files,
    refuse_batching_options,
    unproven,
)
from triton_repo_builder.endpoint.plan.preprocessed import Media
from triton_repo_builder.endpoint.tasks.support import vision
from triton_repo_builder.endpoint.tasks.task import Kind
from triton_repo_builder.model.read import image_processor, image_reference
from triton_repo_builder.model.read.image_processor import ImageSpec
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

SETTINGS_FILE = "preprocess.json"
ALSO = {"letterbox": "image_letterbox.py"}
"""Modules of ``runtime/`` that some settings need beside ``image_pixels.py``."""
SAMPLE = "image"
"""The file of the warm-up sample."""
STRETCHED = (
    "its preprocessing crops images, and the label map of the crop is stretched to the whole image, as in "
    "transformers: write a size of height and width into the file, without a crop, if the whole image counts"
)
MEDIA = Media(
    field=golden.INPUT,
    about="image files to pixels",
    answers="the answer in pixels of the image",
    joins="images of any size join: IMAGE has a fixed shape, and so have the pixels",
    sample=SAMPLE,
)
OF_A_SHAPE = "images of any shape are made ready together; the graph joins those that become one shape"
UNRESIZED = 224
"""Rows and columns of the graph's warm-up, if images stay as large as they are."""


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How an image file becomes the graph's input."""

    spec: ImageSpec
    layout: str
    """``NCHW`` or ``NHWC``."""
    dims: tuple[int, ...]
    """Shape of one image's pixels."""


def prepare(request: PlanRequest) -> Preprocessing:
    """The preprocessing in preprocessor_config.json, or in Ultralytics' metadata. Raises ``TrbError``."""
    source = request.source
    export = vision.export(source)
    if export is not None:
        spec = image_processor.letterboxed(source.path, export.size)
    else:
        assert source.preprocessor is not None
        spec = image_processor.read(source.preprocessor)
        if request.options.preprocessor is None:
            image_reference.check_unnamed(spec, list(golden.images().values()))
    pixels = source.signature.inputs[0]
    layout = vision.layout(pixels)
    _check_channels(source, pixels, layout)
    return Preprocessing(spec=spec, layout=layout, dims=_dims(spec, pixels, layout))


def prove(prepared: Preprocessing) -> None:
    """``TrbError`` if the served code gives other pixels than transformers: golden cases show it, too."""
    golden.pixels(prepared.spec, prepared.layout, golden.images())


def record(request: PlanRequest, prepared: Preprocessing, original: OriginalModel) -> Recording:
    """Answers to the images of this package, with transformers' preprocessing."""
    source, batching = request.source, request.source.signature.batch.possible
    images = golden.given_images(prepared.spec, prepared.layout)
    return media.record(original, source, request.task, images, request.name, batching=batching)


def plan(request: PlanRequest, prepared: Preprocessing, recording: Recording | None) -> EndpointPlan:
    """Raises ``TrbError`` NOT_BATCHABLE."""
    if recording is None:
        prove(prepared)
    source, task, options, name = request.source, request.task, request.options, request.name
    measured = measured_obstacle(request, recording)
    if measured:
        refuse_batching_options(request, measured)
    obstacle = measured or source.signature.batch.reason
    facts = ModelFacts(
        kind=Kind.IMAGE, bytes=source.signature.bytes, tokens=request.tokens, obstacle=obstacle
    )
    settings = defaults.decide(options, request.machine, facts)
    media = MEDIA if prepared.spec.size else replace(MEDIA, joins=OF_A_SHAPE, least=_edge(prepared.spec))
    repository = preprocessed.models(media, request, settings, prepared.dims, batching=not obstacle)
    preprocess = repository.models[1].name
    return EndpointPlan(
        repository=repository,
        settings=settings,
        cases=recording.cases if recording else None,
        files=(
            *preprocess_files(request, prepared, preprocess),
            File(path=f"{name}/{options.version}/.gitkeep", content=PLACEHOLDER),
            *postprocess_files(task, name, options.version),
        ),
        vendored=(vendored(request, preprocess),),
        facts=facts_of(prepared.spec),
        notes=(
            *notes(request, prepared),
            *((STRETCHED,) if task.post and prepared.spec.crop else ()),
            *not_batched(obstacle),
            *unproven(recording, settings),
            *(recording.notes if recording else ()),
        ),
    )


def preprocess_files(request: PlanRequest, prepared: Preprocessing, preprocess: str) -> tuple[File, ...]:
    """The files of the preprocessing model of that name."""
    root = f"{preprocess}/{request.options.version}"
    served = prepared.spec.settings(prepared.layout)
    modules = ["image_pixels.py", *(module for setting, module in ALSO.items() if setting in served)]
    files = [
        File(path=f"{root}/model.py", content=resources.runtime("image.py").read_bytes()),
        *(
            File(path=f"{root}/{module}", content=resources.runtime(module).read_bytes())
            for module in modules
        ),
        File(path=f"{root}/{SETTINGS_FILE}", content=(json.dumps(served, indent=1) + "\n").encode()),
    ]
    if request.options.warmup:
        data = next(iter(golden.images().values()))
        content = struct.pack("<I", len(data)) + data
        files.append(File(path=f"{preprocess}/warmup/{SAMPLE}", content=content))
    return tuple(files)


def vendored(request: PlanRequest, preprocess: str) -> Vendored:
    """The library beside the preprocessing model of that name."""
    options = request.options
    path = f"{preprocess}/{options.version}/vendor"
    return Vendored(library="pillow", path=path, wheels=options.pillow_wheel)


def notes(request: PlanRequest, prepared: Preprocessing) -> tuple[str, ...]:
    """Notes on the preprocessing."""
    made_by = str(request.source.config.get("transformers_version", ""))
    return tuple(filter(None, (prepared.spec.version_note(made_by),)))


def _check_channels(source: Source, pixels: TensorSpec, layout: str) -> None:
    """``TrbError`` if the graph leaves the channels open, and config.json says that they are not three."""
    channels = source.config.get("num_channels", 3)
    if isinstance(channels, int) and channels != 3 and pixels.dims[1 if layout == "NCHW" else 3] == -1:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"num_channels is {channels}, and an image file gives three channels: red, green and blue",
            where=str(source.path.parent / "config.json"),
            remedy=f"use --task tensor and send '{pixels.name}'",
        )


def _dims(spec: ImageSpec, pixels: TensorSpec, layout: str) -> tuple[int, ...]:
    """Shape of one image's pixels, -1 where the image decides. ``TrbError`` if the graph takes another."""
    size = spec.size or (-1, -1)
    dims = (3, *size) if layout == "NCHW" else (*size, 3)
    stated = pixels.dims[1:]
    rows, columns = stated[1:] if layout == "NCHW" else stated[:2]
    if spec.size is None and (rows, columns) != (-1, -1):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"images keep their shape (resized by an edge, not cropped), the model's input "
            f"'{pixels.name}' is {list(stated)}",
            where=str(spec.file),
            remedy="export with dynamic height and width, or write a size of height and width into it that "
            "suits the model",
        )
    if any(size_in_graph not in (-1, planned) for size_in_graph, planned in zip(stated, dims, strict=True)):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"makes images of {list(dims)}, the model's input '{pixels.name}' is {list(stated)}",
            where=str(spec.file),
            remedy=f"use this model's own {image_processor.FILE}, or export for images of that size",
        )
    return dims


def _edge(spec: ImageSpec) -> int:
    """Rows and columns that the graph is warmed up with."""
    return (spec.resize or {}).get("shortest_edge", UNRESIZED)


def facts_of(spec: ImageSpec) -> tuple[tuple[str, Any], ...]:
    """Facts for the manifest."""
    size = list(spec.size) if spec.size else dict(spec.resize or {})
    return (("preprocessor", spec.kind or spec.file.name), ("image_size", size))
