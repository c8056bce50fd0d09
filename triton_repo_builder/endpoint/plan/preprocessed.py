"""An ensemble of a Python model that makes ready a file that a client sends, and the graph with its head."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.endpoint.plan import onnx_model
from triton_repo_builder.endpoint.plan.defaults import ServingSettings
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest
from triton_repo_builder.endpoint.plan.model import (
    EnsembleStep,
    InstanceGroup,
    ModelPlan,
    RepositoryPlan,
    TensorPlan,
    WarmupInput,
    about_model,
    between,
)
from triton_repo_builder.repository import tensor_names


@dataclass(frozen=True, kw_only=True)
class Media:
    """One kind of file."""

    field: str
    """The endpoint's input."""
    about: str
    """Description of the preprocessing, for its config.pbtxt; ``answers`` describes the post-processing."""
    answers: str
    joins: str
    """Which requests join."""
    sample: str
    """The file of the preprocessing's warm-up sample."""
    least: int = 1
    """The fewest elements of an open axis, for the warm-up of the graph."""


def models(
    media: Media, request: PlanRequest, settings: ServingSettings, dims: tuple[int, ...], *, batching: bool
) -> RepositoryPlan:
    """File → answer: an ensemble of preprocessing, the model with its head, and post-processing if needed.

    ``dims`` is the shape of the graph's input for one file.
    """
    name, signature, task, options = request.name, request.source.signature, request.task, request.options
    taken_as = signature.inputs[0]
    outputs = tuple(
        onnx_model.whole(tensor, batching, onnx_model.rows(signature, task)) for tensor in task.outputs
    )
    single = () if batching else (taken_as.dims[0],)
    preprocessed = TensorPlan(name=taken_as.name, data_type=taken_as.dtype.config, dims=(*single, *dims))
    size = TensorPlan(name=tensor_names.IMAGE_SIZE, data_type="TYPE_INT64", dims=(*single, 2))
    sized = task.head is not None and size.name in task.head.inputs
    taken = (preprocessed, *((size,) if sized else ()))
    outgoing = (preprocessed, *((size,) if sized or (task.post and size.name in task.post.inputs) else ()))
    preprocess = preprocess_model(media, request, outgoing, settings, batching=batching)
    model = ModelPlan(
        name=f"{name}_model",
        about=about_model(front=False, head=task.head is not None),
        max_batch_size=preprocess.max_batch_size,
        input=taken,
        output=outputs,
        warmup=tuple(
            WarmupInput(
                name=plan.name,
                data_type=plan.data_type,
                dims=tuple(d if d > 0 else media.least for d in plan.dims),
            )
            for plan in taken
        )
        if options.warmup
        else (),
    )
    model = onnx_model.onnx_model(model, options, settings, batching=batching)
    public = (media.field, *(plan.name for plan in (task.post.outputs if task.post else outputs)))
    inner = {plan.name: between(plan.name, public) for plan in outgoing}
    steps: tuple[EnsembleStep, ...] = (
        EnsembleStep(
            model_name=preprocess.name,
            input_map=((media.field, media.field),),
            output_map=tuple(inner.items()),
        ),
        EnsembleStep(
            model_name=model.name,
            input_map=tuple((plan.name, inner[plan.name]) for plan in taken),
            output_map=tuple((plan.name, plan.name) for plan in outputs),
        ),
    )
    parts: tuple[ModelPlan, ...] = (preprocess, model)
    if task.post is not None:
        plans = {plan.name: plan for plan in (*outgoing, *outputs)}
        post = onnx_model.postprocess(f"{name}_postprocess", media.answers, task.post, plans, preprocess)
        outputs, parts = post.output, (preprocess, post, model)
        steps += (
            EnsembleStep(
                model_name=post.name,
                input_map=tuple((plan.name, inner.get(plan.name, plan.name)) for plan in post.input),
                output_map=tuple((plan.name, plan.name) for plan in post.output),
            ),
        )
    ensemble = ModelPlan(
        name=name,
        about=f"Endpoint ({task.name}): {media.field} in, {', '.join(plan.name for plan in outputs)} out.",
        max_batch_size=preprocess.max_batch_size,
        input=preprocess.input,
        output=outputs,
        response_cache=options.response_cache,
        step=steps,
    )
    return RepositoryPlan(
        task=task.name, models=(ensemble, *parts), version=options.version, notes=task.notes
    )


def preprocess_model(
    media: Media,
    request: PlanRequest,
    output: tuple[TensorPlan, ...],
    settings: ServingSettings,
    *,
    batching: bool,
) -> ModelPlan:
    """File → ``output``: the graph's input for it, and facts that the graph or post-processing need."""
    instances = settings.preprocess_instances
    assert instances is not None
    size = int(settings.max_batch_size.value) if batching else 0
    sample = WarmupInput(name=media.field, data_type="TYPE_STRING", dims=(1,), input_data_file=media.sample)
    return ModelPlan(
        name=f"{request.name}_preprocess",
        about=f"Preprocessing: {media.about}, as the model's files say.",
        backend="python",
        max_batch_size=size,
        input=(TensorPlan(name=media.field, data_type="TYPE_STRING", dims=(1,)),),
        output=output,
        dynamic_batching=settings.joining(size),
        instance_group=InstanceGroup(count=int(instances.value), kind=onnx_model.CPU),
        reasons=(
            ("instances", instances.reason),
            ("batching", media.joins if settings.joins else settings.batching.reason),
        ),
        warmup=(sample,) if request.options.warmup else (),
    )
