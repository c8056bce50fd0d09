"""Metrics and spans of Python models: their modules beside each model.py, and ``--metrics off``."""

from __future__ import annotations

from dataclasses import replace

from triton_repo_builder.base import resources
from triton_repo_builder.base.files import File
from triton_repo_builder.base.releases import Release
from triton_repo_builder.endpoint.plan.endpoint import EndpointPlan
from triton_repo_builder.model.read.options import BuildOptions

BACKEND = "python"
OFF = ("metrics", "off")
MODULES = ("metrics.py", "spans.py")
"""Modules of ``runtime/`` that each Python model gets."""


LATENCIES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
"""Milliseconds. The server's own are 100, 500, 2,000 and 5,000, and most answers take less than the first."""
HISTOGRAMS = "latency_histograms"


def add(plan: EndpointPlan, options: BuildOptions, release: Release) -> EndpointPlan:
    """The plan with metrics and spans of its Python models, and buckets of the server's own histogram."""
    repository = plan.repository
    contents = {name: resources.runtime(name).read_bytes() for name in MODULES}
    files = tuple(
        File(path=f"{model.name}/{repository.version}/{name}", content=content)
        for model in repository.models
        if model.backend == BACKEND
        for name, content in contents.items()
    )
    models = tuple(
        replace(model, parameters=(*model.parameters, OFF))
        if model.backend == BACKEND and options.metrics == "off"
        else model
        for model in repository.models
    )
    if options.metrics != "off" and HISTOGRAMS in release.features:
        models = (replace(models[0], latency_buckets=LATENCIES), *models[1:])
    return replace(plan, files=(*plan.files, *files), repository=replace(repository, models=models))
