"""Metrics of Python models: ``runtime/metrics.py`` beside each model.py, and ``--metrics off`` for it."""

from __future__ import annotations

from dataclasses import replace

from triton_repo_builder.base import resources
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.plan.endpoint import EndpointPlan
from triton_repo_builder.model.read.options import BuildOptions

BACKEND = "python"
OFF = ("metrics", "off")


def add(plan: EndpointPlan, options: BuildOptions) -> EndpointPlan:
    """The plan with the metrics of its Python models."""
    repository = plan.repository
    content = resources.runtime("metrics.py").read_bytes()
    files = tuple(
        File(path=f"{model.name}/{repository.version}/metrics.py", content=content)
        for model in repository.models
        if model.backend == BACKEND
    )
    models = tuple(
        replace(model, parameters=(*model.parameters, OFF))
        if model.backend == BACKEND and options.metrics == "off"
        else model
        for model in repository.models
    )
    return replace(plan, files=(*plan.files, *files), repository=replace(repository, models=models))
