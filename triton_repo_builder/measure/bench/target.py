"""The endpoint to load: name, inputs, models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.options import Variant
from triton_repo_builder.repository import CASES, cases, composition
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.serve.processes import cpu

ASK = 30.0
"""Seconds for questions about the server and its statistics; ``--timeout`` is for requests."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An endpoint, ready to be loaded."""

    variant: Variant
    http: HttpClient
    endpoint: Endpoint
    models: tuple[str, ...]
    """The endpoint, then the models it is composed of."""
    truncates_at: int | None
    """Tokens at which the tokenizer truncates, if a model states it."""
    golden: cases.CaseFile | None
    pid: int | None
    metrics: str
    on_gpu: bool
    """Whether a model that it runs has instances on a GPU."""
    server: Mapping[str, Any]
    """Facts for the report."""

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.endpoint.name


def find(variant: Variant) -> Target:
    """Ask the server; raises ``TrbError`` if it does not answer or the endpoint is not clear."""
    http = HttpClient(variant.urls.http, ASK)
    try:
        version = http.version()
        name = variant.endpoint or _only(variant, http)
        endpoint = http.endpoint(name, http.config(name))
        models = composition.members((name,), http.steps_of)
    except RequestFailed as error:
        raise _no_answer(variant, error) from None
    configs = [_config(http, model) for model in models]
    pid = variant.pid or cpu.server_process(http.url)
    return Target(
        variant=variant,
        http=http,
        endpoint=endpoint,
        models=models,
        truncates_at=next((length for length in map(_max_length, configs) if length), None),
        golden=_golden(variant, name),
        pid=pid,
        metrics=variant.urls.metrics,
        on_gpu=any(group.kind == "KIND_GPU" for config in configs for group in config.instance_groups),
        server={
            "variant": variant.name,
            "url": http.url,
            "grpc": variant.urls.grpc,
            "version": version,
            "pid": pid,
            "endpoint": name,
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
    ready = sorted({entry.name for entry in http.index() if entry.ready})
    if variant.repository is not None:
        names = tuple(model.name for model in variant.repository.endpoints if model.name in ready)
        where = str(variant.repository.path)
    else:
        names = composition.outermost(ready, http.steps_of)
        where = variant.urls.http
    if len(names) == 1:
        return names[0]
    message = f"has {len(names)} endpoints" if names else "has no endpoint that is ready"
    remedy = f"choose one with --endpoint: {', '.join(names)}" if names else "see 'trb smoke' for the reason"
    raise TrbError(Code.USAGE, message, where=where, remedy=remedy)


def _config(http: HttpClient, name: str) -> ModelConfig:
    try:
        return http.config(name)
    except RequestFailed:
        # A server may keep its configurations to itself.
        return ModelConfig()


def _max_length(config: ModelConfig) -> int:
    text = config.parameters.get("max_length", "")
    return int(text) if text.isdecimal() else 0


def _golden(variant: Variant, endpoint: str) -> cases.CaseFile | None:
    """The golden cases, if they can be read: without them, inputs are generated."""
    repository = variant.repository
    model = repository.model(endpoint) if repository else None
    manifest = repository.manifest if repository else None
    entry = manifest.endpoints.get(endpoint) if manifest else None
    named = entry.served.cases if entry else None
    if repository is None or (model is None and not named):
        return None
    file = repository.path / (named or f"{endpoint}/{CASES}")
    try:
        return cases.load(file)
    except (OSError, ValueError):
        return None
