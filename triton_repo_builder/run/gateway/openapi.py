"""The description of the gateway's routes in OpenAPI 3.1 (spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import triton_repo_builder
from triton_repo_builder.run.gateway.call import Route
from triton_repo_builder.run.gateway.catalogue import Catalogue
from triton_repo_builder.run.gateway.examples import Example, example
from triton_repo_builder.run.gateway.refusal import Refusal

APIS = {
    "openai": "OpenAI",
    "cohere": "Cohere and Jina",
    "tei": "text-embeddings-inference",
    "huggingface": "Hugging Face",
    "gateway": "The gateway itself",
}
ERRORS = {
    400: "the request is wrong in itself, or the endpoint cannot do this",
    401: "no key, or an unknown one",
    404: "there is no endpoint of this name",
    413: "the body, the list or a text is too long",
    429: "too many requests are under way: try again after Retry-After",
    503: "the inference server does not answer",
    504: "no answer within the deadline",
}
OF_ENDPOINTS = (400, 404, 413, 429, 503, 504)
KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def document(routes: Iterable[Route], catalogue: Catalogue, *, keyed: bool) -> dict[str, Any]:
    """The document; ``keyed``: requests need an API key."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for route in routes:
        error = route.errors(Refusal(400, "what is wrong", field="model", code="invalid_value"))
        schemas.setdefault(_error_name(route), schema(error))
        template, parameters = _parameters(route, catalogue)
        operation = _operation(route, example(route, catalogue), keyed=keyed)
        paths.setdefault(template, {})[route.method.lower()] = operation | parameters
    components: dict[str, Any] = {"schemas": schemas}
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "trb gateway", "version": triton_repo_builder.__version__},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": title} for name, title in APIS.items()],
        "paths": paths,
        "components": components,
        **({"security": [{"key": []}]} if keyed else {}),
    }


def _operation(route: Route, shown: Example, *, keyed: bool) -> dict[str, Any]:
    statuses = OF_ENDPOINTS if route.tasks else ()
    if keyed and not route.open:
        statuses = (*statuses, 401)
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_error_name(route)}"}}}
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "tags": [route.api],
        "summary": route.summary,
        "responses": {
            "200": {"description": route.summary or "the answer"},
            **{str(each): {"description": ERRORS[each], "content": content} for each in sorted(statuses)},
        },
    }
    if route.tasks:
        operation["description"] = f"Answered by: {', '.join(shown.models) or 'no endpoint here'}."
    if shown.body is not None:
        body = schema(shown.body)
        if "model" in body.get("properties", {}) and shown.models:
            body["properties"]["model"]["enum"] = list(shown.models)
        media = {"schema": body, "example": shown.body}
        operation["requestBody"] = {"required": True, "content": {"application/json": media}}
    if route.open and keyed:
        operation["security"] = []
    return operation


def _parameters(route: Route, catalogue: Catalogue) -> tuple[str, dict[str, Any]]:
    """The path with a parameter for its ``*``, and that parameter."""
    if "*" not in route.path:
        return route.path, {}
    able = catalogue.doing(route.tasks) if route.tasks else list(catalogue)
    names: dict[str, Any] = {"type": "string"}
    if able:
        names["enum"] = [one.name for one in able]
    parameter = {"name": "name", "in": "path", "required": True, "schema": names}
    return route.path.replace("*", "{name}"), {"parameters": [parameter]}


def _error_name(route: Route) -> str:
    return f"{route.errors.__name__.capitalize()}Error"


def schema(value: Any) -> dict[str, Any]:
    """The JSON schema of an example; what it does not show is allowed."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: schema(each) for key, each in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": schema(value[0]) if value else {}}
    return {"type": KINDS[type(value)]} if value is not None else {}
