"""The endpoint to load: which it is, what it takes, which models it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.bench.measure import cpu
from triton_repo_builder.bench.options import Variant
from triton_repo_builder.client import HttpClient, Metadata, RequestFailed
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.golden import cases

ASK = 30.0
"""Seconds in which the server must say what it is and what it counted; no business of ``--timeout``."""
STEPS = 20
"""Ensembles within ensembles that are followed, lest a circle never ends."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An endpoint, ready to be loaded."""

    variant: Variant
    http: HttpClient
    endpoint: str
    metadata: Metadata
    max_batch_size: int
    optional: frozenset[str]
    models: tuple[str, ...]
    """The endpoint, then the models it is composed of."""
    cut: int | None
    """Tokens at which the tokenizer cuts, where a model states it."""
    golden: cases.CaseFile | None
    pid: int | None
    metrics: str
    on_gpu: bool
    """Whether a model that it runs has instances on a GPU."""
    server: Mapping[str, Any]
    """Facts for the report."""


def find(variant: Variant) -> Target:
    """Ask the server; raises ``TrbError`` where it does not answer or the endpoint is not clear."""
    http = HttpClient(variant.urls.http, ASK)
    try:
        version = http.version()
        endpoint = variant.endpoint or _only(variant, http)
        metadata = http.metadata(endpoint)
        config = http.config(endpoint)
        models, configs = _models(http, endpoint, config)
    except RequestFailed as error:
        raise _no_answer(variant, error) from None
    pid = variant.pid or cpu.listener(http.url)
    return Target(
        variant=variant,
        http=http,
        endpoint=endpoint,
        metadata=metadata,
        max_batch_size=int(config.get("max_batch_size", 0)),
        optional=frozenset(item["name"] for item in config.get("input", ()) if item.get("optional")),
        models=models,
        cut=next((length for one in configs for length in [_cut(one)] if length), None),
        golden=_golden(variant, endpoint),
        pid=pid,
        metrics=getattr(variant.urls, "metrics", ""),
        on_gpu=any(_on_gpu(one) for one in configs),
        server={
            "variant": variant.name,
            "url": http.url,
            "grpc": variant.urls.grpc,
            "version": version,
            "pid": pid,
            "endpoint": endpoint,
            "models": list(models),
            "repository": str(variant.repository.path) if variant.repository else "",
            "on_client_machine": cpu.local(http.url),
        },
    )


def _no_answer(variant: Variant, error: RequestFailed) -> TrbError:
    if variant.endpoint and error.status:
        return TrbError(
            Code.USAGE,
            f"has no endpoint {variant.endpoint} that is ready: {error.message}",
            where=variant.urls.http,
            remedy="see what it has with: trb status, or POST /v2/repository/index",
        )
    return TrbError(
        Code.UNREACHABLE,
        f"no tritonserver answers: {error}",
        where=variant.urls.http,
        remedy="start one with 'trb serve', or leave out --url and bench starts its own",
    )


def _only(variant: Variant, http: HttpClient) -> str:
    """The one endpoint that the server has, of those in the repository."""
    ready = sorted({entry.name for entry in http.index() if entry.state == "READY"})
    if variant.repository is not None:
        names = [model.name for model in variant.repository.endpoints if model.name in ready]
        where = str(variant.repository.path)
    else:
        inner = {step for name in ready for step in _steps(_config(http, name))}
        names = [name for name in ready if name not in inner]
        where = variant.urls.http
    if len(names) == 1:
        return names[0]
    message = f"has {len(names)} endpoints" if names else "has no endpoint that is ready"
    remedy = f"choose one with --endpoint: {', '.join(names)}" if names else "see 'trb smoke' for the reason"
    raise TrbError(Code.USAGE, message, where=where, remedy=remedy)


def _config(http: HttpClient, name: str) -> dict[str, Any]:
    try:
        return http.config(name)
    except RequestFailed:
        # A server may keep its configurations to itself.
        return {}


def _steps(config: Mapping[str, Any]) -> list[str]:
    scheduling = config.get("ensemble_scheduling") or {}
    return [str(step["model_name"]) for step in scheduling.get("step", ())]


def _models(
    http: HttpClient, endpoint: str, config: dict[str, Any]
) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    found = {endpoint: config}
    waiting = [(step, 1) for step in _steps(config)]
    while waiting:
        name, depth = waiting.pop(0)
        if name not in found and depth < STEPS:
            found[name] = _config(http, name)
            waiting += [(step, depth + 1) for step in _steps(found[name])]
    return tuple(found), list(found.values())


def _cut(config: Mapping[str, Any]) -> int:
    value = (config.get("parameters") or {}).get("max_length", {}).get("string_value", "")
    return int(value) if str(value).isdecimal() else 0


def _on_gpu(config: Mapping[str, Any]) -> bool:
    return any(group.get("kind") == "KIND_GPU" for group in config.get("instance_group", ()))


def _golden(variant: Variant, endpoint: str) -> cases.CaseFile | None:
    """Golden cases are an input here, not a promise: without them inputs are made."""
    repository = variant.repository
    model = repository.model(endpoint) if repository else None
    manifest = (repository.manifest or {}) if repository else {}
    named = manifest.get("endpoints", {}).get(endpoint, {}).get("cases")
    if repository is None or (model is None and not named):
        return None
    file = repository.path / (named or f"{endpoint}/smoke.json")
    try:
        return cases.load(file)
    except (OSError, ValueError):
        return None
