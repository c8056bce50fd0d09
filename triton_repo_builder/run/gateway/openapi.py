"""The description of the gateway's routes in OpenAPI 3.1 (spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import triton_repo_builder
from triton_repo_builder.run.gateway.call import Route
from triton_repo_builder.run.gateway.catalogue import Catalogue
from triton_repo_builder.run.gateway.examples import SPECIAL, Example, examples, type_of
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
    422: "a field or a text is wrong",
    424: "the inference server failed, or the endpoint does another task",
    429: "too many requests are under way: try again after Retry-After",
    503: "the inference server does not answer",
    504: "no answer within the deadline",
}
OF_ENDPOINTS = (400, 404, 413, 429, 503, 504)
OF_API = {"tei": (422, 424), "huggingface": (422, 424)}
FILE = {"type": "string", "format": "binary"}
STRING = {"type": "string"}
KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}


def document(routes: Iterable[Route], catalogue: Catalogue, *, keyed: bool) -> dict[str, Any]:
    """The document; ``keyed``: requests need an API key."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for route in routes:
        error = route.errors(Refusal(400, "what is wrong", field="model", code="invalid_value"))
        schemas.setdefault(_error_name(route), schema(error))
        operation = _operation(route, examples(route, catalogue), keyed=keyed)
        if "*" in route.path:
            operation["parameters"] = [_parameter(route, catalogue)]
        paths.setdefault(template(route), {})[route.method.lower()] = operation
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


def template(route: Route) -> str:
    """The path with the name of its parameter."""
    return route.path.replace("*", "{name}")


def _operation(route: Route, shown: Sequence[Example], *, keyed: bool) -> dict[str, Any]:
    statuses = (*OF_ENDPOINTS, *OF_API.get(route.api, ())) if route.method == "POST" else ()
    if keyed and not route.open:
        statuses = (*statuses, 401)
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_error_name(route)}"}}}
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{template(route)}").strip("_"),
        "tags": [route.api],
        "summary": route.summary,
        "responses": {
            "200": {"description": route.summary or "the answer"},
            **{str(each): {"description": ERRORS[each], "content": content} for each in sorted(statuses)},
        },
    }
    if any(each.sample.tasks for each in shown):
        models = dict.fromkeys(name for each in shown for name in each.models)
        operation["description"] = f"Answered by: {', '.join(models) or 'no endpoint here'}."
    if route.method == "POST":
        operation["requestBody"] = {"required": True, "content": _content(shown)}
    if route.open and keyed:
        operation["security"] = []
    return operation


def _content(shown: Sequence[Example]) -> dict[str, Any]:
    """Media types of the request's body with their schemas and examples."""
    content: dict[str, Any] = {}
    for each in shown:
        sample = each.sample
        if sample.file:
            content[type_of(sample.file)] = {"schema": FILE}
            continue
        kind = "multipart/form-data" if sample.form else "application/json"
        body = _schema_of_form(sample.form) if sample.form else schema(sample.body)
        if "model" in body.get("properties", {}) and each.models:
            body["properties"]["model"]["enum"] = list(each.models)
        media = content.setdefault(kind, {"schema": {"anyOf": []}, "examples": {}})
        if body not in media["schema"]["anyOf"]:
            media["schema"]["anyOf"].append(body)
        media["examples"][each.task or "example"] = {"value": sample.form or sample.body}
    return content


def _schema_of_form(form: Mapping[str, str]) -> dict[str, Any]:
    parts = {name: dict(FILE if value.startswith("@") else STRING) for name, value in form.items()}
    return {"type": "object", "properties": parts}


def _parameter(route: Route, catalogue: Catalogue) -> dict[str, Any]:
    """The parameter for the rest of a path: an endpoint's name, or more (``SPECIAL``)."""
    names: dict[str, Any] = dict(STRING)
    able = catalogue.doing(route.tasks) if route.tasks else list(catalogue)
    if able and (route.method, route.path) not in SPECIAL:
        names["enum"] = [served.name for served in able]
    return {"name": "name", "in": "path", "required": True, "schema": names}


def _error_name(route: Route) -> str:
    return f"{route.errors.__name__.capitalize()}Error"


def schema(value: Any) -> dict[str, Any]:
    """The JSON schema of an example; what it does not show is allowed."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: schema(each) for key, each in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": schema(value[0]) if value else {}}
    return {"type": KINDS[type(value)]} if value is not None else {}
