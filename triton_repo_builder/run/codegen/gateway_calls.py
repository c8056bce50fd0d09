"""Calls of an endpoint through the gateway, as clients of OpenAI and Cohere make them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.base import templates
from triton_repo_builder.run.client import HttpClient, NoAnswer
from triton_repo_builder.run.client.values import JSON
from triton_repo_builder.run.codegen.example import Example
from triton_repo_builder.run.gateway import recognition

LANGUAGES = ("openai-curl", "openai-python", "openai-javascript")
TITLE = "through the gateway"
SOUND = "speech.wav"
"""Name of a file in a call of an endpoint that takes sounds."""
OPENAI, COHERE = "OPENAI_API_KEY", "CO_API_KEY"
"""Environment variables from which the clients read their key."""


@dataclass(frozen=True)
class Gateway:
    """Address of a gateway, and whether it asks for a key."""

    url: str
    keyed: bool = False


def reached(url: str) -> Gateway | None:
    """The gateway at a URL; None if nothing answers there."""
    try:
        answer = HttpClient(url, 5).send("GET", "/v1/models")
    except NoAnswer:
        return None
    return Gateway(url.rstrip("/"), answer.status == 401)


def calls(request: Example, gateway: Gateway | None) -> dict[str, str]:
    """A call in each of ``LANGUAGES``; empty without a gateway, or for a task that they have no call for."""
    kind = KINDS.get(recognition.task(request.endpoint)) if gateway is not None else None
    if kind is None or gateway is None:
        return {}
    name, key, values = kind(request)
    values = {
        "model": request.endpoint.name,
        "url": gateway.url,
        "header": f' -H "Authorization: Bearer ${key}"' if gateway.keyed else "",
        "variable": key if gateway.keyed else "",
        **values,
    }
    curl = _curl_file if name == "transcription" else _curl
    return {
        "openai-curl": curl(values),
        "openai-python": templates.render(f"gateway_{name}.py.jinja", **values).rstrip("\n"),
        "openai-javascript": templates.render(f"gateway_{name}.js.jinja", **values).rstrip("\n"),
    }


def _embedding(request: Example) -> tuple[str, str, dict[str, Any]]:
    texts = _texts(request, "TEXT")
    return "embedding", OPENAI, {"path": "/v1/embeddings", "body": {"input": texts}, "texts": texts}


def _rerank(request: Example) -> tuple[str, str, dict[str, Any]]:
    query, documents = _texts(request, "QUERY")[0], _texts(request, "DOCUMENT")
    body = {"query": query, "documents": documents}
    return "rerank", COHERE, {"path": "/v2/rerank", "body": body, **body}


def _transcription(request: Example) -> tuple[str, str, dict[str, Any]]:
    return "transcription", OPENAI, {"path": "/v1/audio/transcriptions", "file": request.path or SOUND}


KINDS: Mapping[str, Callable[[Example], tuple[str, str, dict[str, Any]]]] = {
    recognition.EMBEDDING: _embedding,
    recognition.RERANK: _rerank,
    recognition.SPEECH: _transcription,
}
"""Task → name of its templates, variable of the key, values."""


def _texts(request: Example, name: str) -> list[str]:
    """The example's texts of an input, each once."""
    if request.rows:
        return list(dict.fromkeys(row[name] for row in request.rows))
    data: Sequence[Any] | Any = next(item["data"] for item in request.inputs if item["name"] == name)
    return [str(text) for text in (data if isinstance(data, list) else [data])]


def _curl(values: Mapping[str, Any]) -> str:
    content = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in JSON.items())
    body = json.dumps({"model": values["model"], **values["body"]}, ensure_ascii=False)
    url = shlex.quote(values["url"] + values["path"])
    return f"curl -s {url} {content}{values['header']} -d {shlex.quote(body)}"


def _curl_file(values: Mapping[str, Any]) -> str:
    model, file = shlex.quote(f"model={values['model']}"), shlex.quote(f"file=@{values['file']}")
    return f"curl -s {shlex.quote(values['url'] + values['path'])}{values['header']} -F {model} -F {file}"
