"""Faults of gateway.toml that show only once the server's endpoints are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_repo_builder.run.gateway import routes
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served
from triton_repo_builder.run.gateway.mapping import MappedEndpoint
from triton_repo_builder.run.gateway.routes import huggingface, openai_moderations

MODERATIONS = "/v1/moderations"


def faults(catalogue: Catalogue, mapped: Sequence[MappedEndpoint]) -> Iterator[str]:
    """A sentence for each name that leads nowhere, or to an endpoint that cannot answer."""
    aliases, by_name = catalogue.routing.aliases, catalogue.by_name
    for alias, name in aliases.items():
        if name not in by_name:
            yield f"gateway.toml: '{alias}' is an alias of '{name}', which the server does not have"
        elif alias in by_name and alias != name:
            yield (
                f"gateway.toml: the alias '{alias}' is also an endpoint: requests for '{alias}' go to "
                f"'{name}', and none to that endpoint"
            )
    for path, name in catalogue.routing.routes.items():
        served = by_name.get(aliases.get(name, name))
        if served is None:
            yield f"gateway.toml: {path} is for '{name}', which the server does not have"
        elif reason := _unable(path, served):
            refused = "requests without `model` are refused"
            yield f"gateway.toml: {path} is for '{name}', which {reason}: {refused}"
    for endpoint in mapped:
        if endpoint.name not in by_name:
            yield (
                f"gateway.toml: [endpoints.{endpoint.name}] is for '{endpoint.model}', which the server does "
                "not have"
            )
    for served in by_name.values():
        if served.fault:
            yield f"gateway.toml: {served.fault}: requests that need its labels are refused"


def _unable(path: str, served: Served) -> str:
    """Why the endpoint cannot answer a route; empty if it can."""
    tasks = next((route.tasks for route in routes.ALL if route.path == path), ())
    if path.startswith(huggingface.PIPELINE):
        handler = huggingface.PIPELINES.get(path.removeprefix(huggingface.PIPELINE))
        tasks = tuple(task for task, each in huggingface.BY_TASK.items() if each is handler)
    if tasks and served.task not in tasks:
        return f"does {served.task or 'nothing that a route needs'}, not {' or '.join(tasks)}"
    if path == MODERATIONS and not openai_moderations.fits(served):
        return "has no labels that name harm"
    return ""
