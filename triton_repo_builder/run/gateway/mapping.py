"""``gateway.toml``: other names of endpoints, endpoints of a repository that trb did not build, routes.

[aliases]
"text-embedding-3-small" = "minilm"

[routes]
"/v1/embeddings" = "minilm"

[endpoints.reviews]
model = "bert_reviews"
task = "text-classification"
inputs = { TEXT = "text_input" }
outputs = { scores = "probabilities" }
tokenizer = "bert/tokenizer.json"
max_length = 512
prompts = { query = "query: " }
normalized = true
labels = ["bad", "good"]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.catalogue import Routing
from triton_repo_builder.run.gateway.text_rules import TextRules

KINDS: Mapping[str, type] = {
    "model": str,
    "version": int,
    "task": str,
    "inputs": dict,
    "outputs": dict,
    "tokenizer": str,
    "max_length": int,
    "prompts": dict,
    "normalized": bool,
    "labels": list,
}
SECTIONS = ("aliases", "routes", "endpoints")


@dataclass(frozen=True, kw_only=True)
class MappedEndpoint:
    """One table of ``[endpoints]``."""

    name: str
    model: str
    version: str = ""
    task: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    rules: TextRules | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GatewayMap:
    """The whole file."""

    routing: Routing = field(default_factory=Routing)
    endpoints: tuple[MappedEndpoint, ...] = ()


def read(path: Path | None, paths: frozenset[str]) -> GatewayMap:
    """The file; ``paths`` are the gateway's. Raises ``TrbError`` NOT_FOUND, USAGE with file and key."""
    if path is None:
        return GatewayMap()
    try:
        document = files.load_toml(files.read_text(path))
    except OSError as error:
        raise files.unreadable(path, error) from None
    except ValueError as error:
        raise _wrong(path, f"is not TOML: {error}", "see docs/api.md for an example") from None
    for section in document:
        if section not in SECTIONS:
            raise _wrong(path, f"[{section}] is not known", f"use {', '.join(SECTIONS)}")
    for section in ("aliases", "routes"):
        _strings(path, f"[{section}]", document.get(section, {}))
    for route in document.get("routes", {}):
        if route not in paths and not any(_below(route, path) for path in paths):
            raise _wrong(path, f"[routes]: there is no route '{route}'", "GET /openapi.json lists them")
    endpoints = document.get("endpoints", {})
    return GatewayMap(
        routing=Routing(aliases=document.get("aliases", {}), routes=document.get("routes", {})),
        endpoints=tuple(_endpoint(path, name, table) for name, table in endpoints.items()),
    )


def _below(route: str, path: str) -> bool:
    """Whether a path that ends in ``*`` has the route: ``/pipeline/*`` has ``/pipeline/fill-mask``."""
    return path.endswith("*") and route.startswith(path[:-1])


def _endpoint(path: Path, name: str, table: Any) -> MappedEndpoint:
    where = f"[endpoints.{name}]"
    if not isinstance(table, dict):
        raise _wrong(path, f"{where} is not a table", "see docs/api.md for an example")
    for key, value in table.items():
        kind = KINDS.get(key)
        if kind is None:
            raise _wrong(path, f"{where}: '{key}' is not known", f"use {', '.join(KINDS)}")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _wrong(path, f"{where}: '{key}' is a {type(value).__name__}", f"write a {kind.__name__}")
    for key in ("inputs", "outputs", "prompts"):
        _strings(path, f"{where} {key}", table.get(key, {}))
    if "model" not in table:
        raise _wrong(path, f"{where} has no 'model'", "name Triton's model")
    task = table.get("task", "")
    if task and task not in recognition.BY_TASK:
        raise _wrong(path, f"{where}: there is no task '{task}'", f"use {', '.join(recognition.BY_TASK)}")
    tokenizer = path.parent / table["tokenizer"] if "tokenizer" in table else None
    if tokenizer is not None and not tokenizer.is_file():
        raise _wrong(path, f"{where}: tokenizer '{table['tokenizer']}' is not a file", "correct the path")
    texts = {"tokenizer", "max_length", "prompts", "normalized"} & table.keys()
    rules = TextRules(
        file=tokenizer,
        max_length=table.get("max_length", 0),
        prompts=table.get("prompts"),
        normalized=table.get("normalized"),
    )
    return MappedEndpoint(
        name=name,
        model=table["model"],
        version=str(table.get("version", "")),
        task=task,
        inputs=table.get("inputs", {}),
        outputs=table.get("outputs", {}),
        rules=rules if texts else None,
        labels=tuple(map(str, table.get("labels", ()))),
    )


def _strings(path: Path, where: str, table: Any) -> None:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise _wrong(path, f"{where} must map names to names", 'write "name" = "name"')


def _wrong(path: Path, message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=str(path), remedy=remedy)
