"""A model that is served unchanged: tensors in, tensors out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from triton_repo_builder.endpoint.golden import tensor as golden
from triton_repo_builder.endpoint.golden.original import OriginalModel, Recording
from triton_repo_builder.endpoint.plan import defaults
from triton_repo_builder.endpoint.plan.defaults import ModelFacts, ServingSettings
from triton_repo_builder.endpoint.plan.endpoint import (
    EndpointPlan,
    PlanRequest,
    measured_obstacle,
    not_batched,
    refuse_batching_options,
    unproven,
)
from triton_repo_builder.endpoint.plan.model import ModelPlan, RepositoryPlan, WarmupInput
from triton_repo_builder.endpoint.plan.onnx_model import onnx_model
from triton_repo_builder.endpoint.plan.reasons import Reason, Why, because
from triton_repo_builder.endpoint.tasks import tensor as tasks_tensor
from triton_repo_builder.endpoint.tasks.task import Kind
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec

_NO_NAME = re.compile(r".*_dynamic_axes_\d+")
"""The name that torch gives an axis if nobody else did: each input has its own."""


def prepare(request: PlanRequest) -> None:
    """The client's inputs are the graph's."""


def record(request: PlanRequest, prepared: None, original: OriginalModel) -> Recording:
    """Answers to generated inputs."""
    signature = request.source.signature
    batching = signature.batch.possible and not _own_axes(signature)
    return golden.record(original, request.source, request.name, batching=batching)


def plan(request: PlanRequest, prepared: None, recording: Recording | None) -> EndpointPlan:
    """Raises ``TrbError`` NOT_BATCHABLE."""
    source, options = request.source, request.options
    measured = _own_axes(source.signature) or measured_obstacle(request, recording)
    if measured:
        refuse_batching_options(request, measured)
    obstacle = measured or source.signature.batch.reason
    settings = defaults.decide(
        options,
        request.machine,
        ModelFacts(
            kind=Kind.TENSOR,
            bytes=source.signature.bytes,
            tokens=request.tokens,
            obstacle=obstacle,
            joins=_equal_shapes(source.signature),
        ),
    )
    cases = recording.cases if recording else None
    # Inputs that the original accepts; if none was found, a warm-up would keep the server from starting.
    accepted = {tensor.name: tensor.shape for tensor in cases.cases[0].inputs} if cases else {}
    repository = models(
        request,
        settings,
        batching=not obstacle,
        warmup=options.warmup and (recording is None or bool(accepted)),
        accepted=accepted,
    )
    notes = (*(recording.notes if recording else ()), *unproven(recording, settings), *not_batched(obstacle))
    return EndpointPlan(repository=repository, settings=settings, cases=cases, notes=notes)


def _own_axes(signature: ModelSignature) -> str:
    """Why the first axes of the inputs are not one batch: the graph gives them names that differ."""
    named = {
        spec.name: spec.shape[0]
        for spec in signature.inputs
        if spec.shape and isinstance(spec.shape[0], str) and not _NO_NAME.fullmatch(spec.shape[0])
    }
    if len(set(named.values())) < 2:
        return ""
    axes = list({axis: f"'{axis}' of '{name}'" for name, axis in named.items()}.values())
    return f"the first axes of its inputs are not the same: {axes[0]}, {axes[1]}"


def _equal_shapes(signature: ModelSignature) -> Reason | None:
    """Triton joins requests of equal shape."""
    names = [spec.name for spec in signature.inputs if -1 in spec.dims[1:]]
    if not names:
        return None
    listed = f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    return because(Why.EQUAL_SHAPES, inputs=listed)


def models(
    request: PlanRequest,
    settings: ServingSettings,
    *,
    batching: bool,
    warmup: bool = True,
    accepted: Mapping[str, tuple[int, ...]] | None = None,
) -> RepositoryPlan:
    """The model is the endpoint. ``accepted``: input shapes that it is known to take."""
    shapes, signature, options = accepted or {}, request.source.signature, request.options
    model = ModelPlan(
        name=request.name,
        about="Endpoint (tensor): the ONNX model as it is.",
        input=tasks_tensor.tensors(signature.inputs, batching=batching),
        output=tasks_tensor.tensors(signature.outputs, batching=batching),
        max_batch_size=int(settings.max_batch_size.value) if batching else 0,
        warmup=tuple(_zeros(spec, batching, shapes.get(spec.name)) for spec in signature.inputs)
        if warmup
        else (),
        response_cache=options.response_cache,
    )
    model = onnx_model(model, options, settings, batching=batching)
    task = request.task
    return RepositoryPlan(task=task.name, models=(model,), version=options.version, notes=task.notes)


def _zeros(spec: TensorSpec, batching: bool, accepted: tuple[int, ...] | None) -> WarmupInput:
    """Open axes take the size that the model is known to accept, else 1: any size warms the kernels."""
    shape = accepted or spec.dims
    dims = shape[1:] if batching else shape
    return WarmupInput(
        name=spec.name, data_type=spec.dtype.config, dims=tuple(max(dim, 1) for dim in dims) or (1,)
    )
