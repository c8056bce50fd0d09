"""Endpoints of both kinds: IMAGE through the preprocessing, and texts through the tokenizer, to one graph.

Each input is planned as for a graph that takes nothing else; the two are joined in one ensemble.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import image_and_text as golden
from triton_repo_builder.endpoint.golden import transformers_check
from triton_repo_builder.endpoint.golden.image import INPUT
from triton_repo_builder.endpoint.golden.original import OriginalModel, Recording
from triton_repo_builder.endpoint.plan import image, preprocessed, text
from triton_repo_builder.endpoint.plan.defaults import ServingSettings
from triton_repo_builder.endpoint.plan.endpoint import EndpointPlan, PlanRequest
from triton_repo_builder.endpoint.plan.image import Preprocessing
from triton_repo_builder.endpoint.plan.model import (
    EnsembleStep,
    RepositoryPlan,
    TensorPlan,
    WarmupInput,
    between,
)
from triton_repo_builder.endpoint.plan.text import TextEncoding
from triton_repo_builder.endpoint.tasks.support import vision
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.repository import tensor_names


@dataclass(frozen=True, kw_only=True)
class PreparedInputs:
    """Preprocessing of both inputs."""

    text: TextEncoding
    image: Preprocessing


def prepare(request: PlanRequest) -> PreparedInputs:
    """The tokenizer with its limits, and the preprocessing. Raises ``TrbError``."""
    prepared = image.prepare(_images(request))
    if prepared.spec.size is None:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "images keep their shape (resized by an edge, not cropped), so no two of them make a batch",
            where=str(prepared.spec.file),
            remedy="write a crop_size into it, or a size of height and width, that suits the model",
        )
    return PreparedInputs(text=text.prepare(_texts(request)), image=prepared)


def record(request: PlanRequest, prepared: PreparedInputs, original: OriginalModel) -> Recording:
    """Answers to images of this package, each with labels of its own."""
    of_texts = _texts(request)
    labels = {text for _, example in request.task.examples for texts in example.values() for text in texts}
    note = transformers_check.note(of_texts.source.tokenizer_spec, [(text, text) for text in sorted(labels)])
    return golden.record(
        original,
        of_texts.source,
        _pixels(request),
        request.task,
        text.recording_settings(prepared.text),
        prepared.image,
        request.name,
    ).noted(note)


def plan(request: PlanRequest, prepared: PreparedInputs, recording: Recording | None) -> EndpointPlan:
    """Raises ``TrbError`` NOT_BATCHABLE if the inputs of several requests change each other's answers."""
    if recording is None:
        image.prove(prepared.image)
    of_texts, of_images = _texts(request), _images(request)
    if interaction := golden.interaction(of_texts.source, recording):
        raise TrbError(
            Code.NOT_BATCHABLE,
            f"images and labels of several requests cannot share a run of the graph: {interaction}",
            where=str(request.source.path),
            remedy="use an export that is not quantised at run time, or export one tower for each endpoint",
        )
    planned = text.plan(of_texts, prepared.text, recording)
    pixels = _pixels(request)
    pixel_plan = TensorPlan(name=pixels.name, data_type=pixels.dtype.config, dims=prepared.image.dims)
    repository = _joined(request, planned.repository, planned.settings, pixel_plan)
    preprocess = repository.models[-2].name
    tokenizer = f"{planned.repository.models[1].name}/warmup/"
    warm = tuple(
        replace(file, path=file.path.replace(tokenizer, f"{preprocess}/warmup/", 1))
        for file in planned.files
        if file.path.startswith(tokenizer)
    )
    files = image.preprocess_files(of_images, prepared.image, preprocess)
    return replace(
        planned,
        repository=repository,
        files=(*planned.files, *warm, *files),
        vendored=(*planned.vendored, image.vendored(of_images, preprocess)),
        facts=(*planned.facts, *image.facts_of(prepared.image.spec)),
        notes=(*planned.notes, *image.notes(of_images, prepared.image)),
    )


def _joined(
    request: PlanRequest, repository: RepositoryPlan, settings: ServingSettings, pixel_plan: TensorPlan
) -> RepositoryPlan:
    """The text endpoint with the input IMAGE before its texts, and the pixels beside its tokens."""
    ensemble, tokenizer, *parts, network = repository.models
    texts = TensorPlan(name=tensor_names.TEXTS, data_type="TYPE_STRING", dims=(-1,))
    preprocess = preprocessed.preprocess_model(
        image.MEDIA, request, (pixel_plan, texts), settings, batching=True
    )
    sample = WarmupInput(name=pixel_plan.name, data_type=pixel_plan.data_type, dims=pixel_plan.dims)
    preprocess = replace(
        preprocess,
        input=(*preprocess.input, *tokenizer.input),
        warmup=(*preprocess.warmup, *tokenizer.warmup) if preprocess.warmup and tokenizer.warmup else (),
    )
    network = replace(
        network,
        input=(*network.input, pixel_plan),
        warmup=(*network.warmup, sample) if network.warmup else (),
    )
    public = (INPUT, *(plan.name for plan in (*ensemble.input, *ensemble.output)))
    inner = {plan.name: between(plan.name, public) for plan in preprocess.output}
    first = EnsembleStep(
        model_name=preprocess.name,
        input_map=tuple((plan.name, plan.name) for plan in preprocess.input),
        output_map=tuple(inner.items()),
    )
    inner_inputs = {
        tokenizer.name: {plan.name: inner[texts.name] for plan in tokenizer.input},
        network.name: {pixel_plan.name: inner[pixel_plan.name]},
    }
    steps = tuple(
        replace(step, input_map=tuple((dict(step.input_map) | inner_inputs.get(step.model_name, {})).items()))
        for step in ensemble.step
    )
    ensemble = replace(
        ensemble,
        about=ensemble.about.replace("): ", f"): {INPUT}, ", 1),
        input=(preprocess.input[0], *ensemble.input),
        step=(first, *steps),
    )
    return replace(repository, models=(ensemble, tokenizer, *parts, preprocess, network))


def _pixels(request: PlanRequest) -> TensorSpec:
    return next(spec for spec in request.source.signature.inputs if spec.name == vision.NAME)


def _texts(request: PlanRequest) -> PlanRequest:
    """The request for the graph's texts only."""
    source = request.source
    section = source.config.get("text_config")
    inputs = tuple(spec for spec in source.signature.inputs if spec.name != vision.NAME)
    signature = replace(source.signature, inputs=inputs)
    config = {**source.config, **(section if isinstance(section, dict) else {})}
    return replace(request, source=replace(source, signature=signature, config=config))


def _images(request: PlanRequest) -> PlanRequest:
    """The request for the graph's images only."""
    signature = replace(request.source.signature, inputs=(_pixels(request),))
    return replace(request, source=replace(request.source, signature=signature))
