"""Metrics of answers that no Python model sees: the step before the graph samples them."""

from __future__ import annotations

from dataclasses import replace

from triton_repo_builder.base import resources
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.plan.endpoint import EndpointPlan, PlanRequest
from triton_repo_builder.endpoint.plan.model import ModelPlan
from triton_repo_builder.endpoint.render.metrics import BACKEND, OFF

COUNTED = (("label", "score"), ("labels", "count"), ("embedding",))
"""Outputs of heads whose answers are counted; the first that a model has."""
MODULE = "answer_metrics.py"
BLS_AT_ANY_TIME = "python_bls_at_any_time"


def add(plan: EndpointPlan, request: PlanRequest) -> EndpointPlan:
    """The plan with the sample, if the graph's answers are counted and a Python model comes before it."""
    repository, model = plan.repository, plan.repository.network
    if request.options.metrics == "off":
        # The embedded engine's backend counts in the model itself; Triton's own ignores the parameter.
        models = (*repository.models[:-1], replace(model, parameters=(*model.parameters, OFF)))
        return replace(plan, repository=replace(repository, models=models))
    first, outputs = _step_before(plan, request), _counted(request, model)
    if first is None or not outputs:
        return plan
    parameters = (("answers_model", model.name), ("answers", ",".join(outputs)))
    sampling = replace(first, parameters=(*first.parameters, *parameters))
    path = f"{first.name}/{repository.version}/{MODULE}"
    file = File(path=path, content=resources.runtime(MODULE).read_bytes())
    models = tuple(sampling if planned is first else planned for planned in repository.models)
    return replace(plan, files=(*plan.files, file), repository=replace(repository, models=models))


def _step_before(plan: EndpointPlan, request: PlanRequest) -> ModelPlan | None:
    """The only Python model of the endpoint, unless it must not or cannot sample."""
    python = [model for model in plan.repository.models if model.backend == BACKEND]
    # A tokenizer of several endpoints does not know whose text it has.
    alone = len(python) == 1 and not request.options.share_tokenizer
    return python[0] if alone and BLS_AT_ANY_TIME in request.release.features else None


def _counted(request: PlanRequest, model: ModelPlan) -> tuple[str, ...]:
    names = {output.name for output in model.output}
    if request.task.head is None:
        return ()
    return next((outputs for outputs in COUNTED if names.issuperset(outputs)), ())
