"""A request for each route that works here: with the names of endpoints that can answer it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from triton_repo_builder.run.gateway.call import Route
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served

MODEL = "MODEL"
"""Stands for an endpoint's name in ``Route.request``."""
MASK = "[MASK]"
"""Stands for the model's mask in ``Route.request``."""
KEY = 'Authorization: Bearer $API_KEY'


@dataclass(frozen=True, kw_only=True)
class Example:
    """One request."""

    route: Route
    path: str
    body: Any
    """Of ``Route.request``; None: the request has no body."""
    models: Sequence[str]
    """The endpoints that can answer it; empty if the route needs none, or there is none."""

    @property
    def possible(self) -> bool:
        """Whether an endpoint here can answer it."""
        return bool(self.models) or not self.route.tasks

    def curl(self, address: str, *, keyed: bool) -> str:
        """The request as a shell line; with ``keyed`` it takes the key from ``$API_KEY``."""
        parts = [f"curl {shlex.quote(address + self.path)}"]
        if keyed and not self.route.open:
            parts.append(f'-H "{KEY}"')
        if self.body is not None:
            parts.append("-H 'Content-Type: application/json'")
            parts.append(f"-d {shlex.quote(json.dumps(self.body, ensure_ascii=False))}")
        elif self.route.method != "GET":
            parts[0] = f"curl -X {self.route.method} {shlex.quote(address + self.path)}"
        return " \\\n  ".join(parts)


def example(route: Route, catalogue: Catalogue, *, named: bool = True) -> Example:
    """The example of one route; unless ``named``, endpoints' names are left out."""
    able = catalogue.doing(route.tasks) if route.tasks else list(catalogue)
    chosen = catalogue.by_name.get(catalogue.routing.routes.get(route.path, ""))
    served = chosen if chosen in able else next(iter(able), None)
    name = served.name if served is not None and named else MODEL
    return Example(
        route=route,
        path=route.path.replace("*", quote(name)),
        body=_filled(route.request, name, served),
        models=[one.name for one in able] if route.tasks and named else (),
    )


def _filled(value: Any, name: str, served: Served | None) -> Any:
    """An example with the endpoint's name and mask."""
    if isinstance(value, dict):
        return {key: _filled(each, name, served) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, name, served) for each in value]
    if value == MODEL:
        return name
    if isinstance(value, str) and served is not None:
        return value.replace(MASK, served.facts.get("mask", MASK))
    return value
