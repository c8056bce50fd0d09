"""Whether a canary can begin: both servers answer, are two, and serve the same endpoints."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.repository import composition
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.client import HttpClient, RequestFailed, Urls
from triton_repo_builder.ship.canary.world import Servers, metrics
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.routes import CANARY, STABLE

TIMEOUT = 10.0
"""Seconds for each request."""
METRIC = "nv_inference_request_success"
"""Every tritonserver's metrics page has it."""


def check(servers: Servers, deployment: Deployment) -> dict[str, bool]:
    """The endpoints that both serve, each with whether it is an ensemble.

    Raises ``TrbError``: UNREACHABLE, USAGE.
    """
    _two(servers)
    for side, urls in ((STABLE, servers.stable), (CANARY, servers.canary)):
        _answers(side, urls)
    stable, canary = (HttpClient(urls.http, TIMEOUT) for urls in (servers.stable, servers.canary))
    names = _served(stable, deployment.endpoints)
    if not names:
        raise TrbError(
            Code.USAGE,
            f"the stable server serves none of the endpoints of {deployment.file.name}: "
            f"{some(deployment.endpoints)}",
            where=servers.stable.http,
            remedy="name the server that serves them now with --stable",
        )
    missing = [name for name in names if not _ready(canary, name)]
    if missing:
        others = [name for name in _listed(canary) if name not in names]
        has = f"; it serves {some(others)}" if others else ""
        raise TrbError(
            Code.USAGE,
            f"the canary does not serve {some(missing)}, which the stable server does{has}",
            where=servers.canary.http,
            remedy="name a server with the same endpoints with --canary, or load them there",
        )
    for name in names:
        _alike(name, stable, canary, servers)
    if servers.gateway:
        _gateway(servers.gateway)
    ensembles = {model.name for model in deployment.repository.models if model.steps}
    return {name: name in ensembles for name in names}


def _two(servers: Servers) -> None:
    for kind in ("http", "metrics"):
        first, second = (_address(getattr(urls, kind)) for urls in (servers.stable, servers.canary))
        if first and first & second:
            raise TrbError(
                Code.USAGE,
                "is both the stable server and the canary",
                where=getattr(servers.canary, kind),
                remedy="name two servers with --stable and --canary (and --stable-metrics, --canary-metrics)",
            )


def _address(url: str) -> set[tuple[str, int]]:
    """Address and port of a URL, resolved; what cannot be resolved is reported when it does not answer."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        resolved = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    hosts = {str(each[4][0]) for each in resolved}
    # Names of this machine are one.
    return {
        ("127.0.0.1" if host in ("::1", "0.0.0.0") or host.startswith("127.") else host, port)
        for host in hosts
    }


def _answers(side: str, urls: Urls) -> None:
    client = HttpClient(urls.http, TIMEOUT)
    try:
        client.version()
        if not client.ready():
            raise RequestFailed("", "", "it is not ready")
    except RequestFailed as error:
        raise TrbError(
            Code.UNREACHABLE,
            f"the {side} server: {error}",
            where=urls.http,
            remedy=f"name the HTTP address of a tritonserver with --{side}",
        ) from None
    try:
        page = metrics(urls.metrics)
        problem = "" if METRIC in page else f"{urls.metrics}: not the metrics page of a tritonserver"
    except RequestFailed as error:
        problem = str(error)
    if problem:
        raise TrbError(
            Code.UNREACHABLE,
            f"the {side} server has no metrics: {problem}",
            where=urls.http,
            remedy=f"name the page with --{side}-metrics; failures over gRPC and labels are counted there",
        )


def _served(client: HttpClient, names: Sequence[str]) -> list[str]:
    return [name for name in names if _ready(client, name)]


def _ready(client: HttpClient, name: str) -> bool:
    return client.answers_ready() and client.send("GET", f"/v2/models/{name}/ready").status == 200


def _listed(client: HttpClient) -> tuple[str, ...]:
    """Endpoints of a server; empty if it lists them for holders of its admin key only."""
    try:
        names = client.ready_models()
    except (RequestFailed, TrbError):
        return ()
    return composition.outermost(names, client.steps_of)


def _alike(name: str, stable: HttpClient, canary: HttpClient, servers: Servers) -> None:
    """Raise USAGE if clients of the stable endpoint could not call the canary's."""
    try:
        first, second = (client.endpoint(name, client.config(name)) for client in (stable, canary))
    except RequestFailed as error:
        raise TrbError(
            Code.UNREACHABLE,
            f"endpoint '{name}' is not described: {error}",
            where=servers.canary.http,
            remedy="load it on both servers",
        ) from None
    if problem := _breaks(first, second):
        raise TrbError(
            Code.USAGE,
            f"endpoint '{name}' of the canary {problem}, so clients of the stable one would fail",
            where=servers.canary.http,
            remedy="give the new version the same inputs and outputs, or a name of its own; trb diff shows "
            "what changes",
        )


def _breaks(stable: Endpoint, canary: Endpoint) -> str:
    inputs, outputs = ({each.name: each for each in part} for part in (canary.inputs, canary.outputs))
    for tensor in stable.inputs:
        other = inputs.get(tensor.name)
        if other is None or other.datatype != tensor.datatype:
            return f"takes no {tensor.datatype} {tensor.name}"
    stable_inputs = {tensor.name for tensor in stable.inputs}
    for tensor in canary.needed:
        if tensor.name not in stable_inputs:
            return f"needs {tensor.name} too"
    for tensor in stable.outputs:
        other = outputs.get(tensor.name)
        if other is None or other.datatype != tensor.datatype:
            return f"gives no {tensor.datatype} {tensor.name}"
    return ""


def _gateway(url: str) -> None:
    try:
        page = metrics(f"{url}/metrics")
        problem = "" if "trb_shadow_answers_total" in page or "trb_gateway_requests_total" in page else "none"
    except RequestFailed as error:
        problem = str(error)
    if problem:
        raise TrbError(
            Code.UNREACHABLE,
            "the gateway has no metrics" + ("" if problem == "none" else f": {problem}"),
            where=url,
            remedy="name a gateway that runs with --shadow CANARY, or leave out --gateway",
        )
