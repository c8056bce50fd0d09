"""``routes.yml``: Traefik's routes to the stable and the canary server, and the weight of each.

The file states its own input in a comment, so that ``trb canary`` can change a weight of a file that
``trb export`` rendered, and knows a file that is edited or of others.
Format: https://doc.traefik.io/traefik/reference/routing-configuration/other-providers/file/
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from triton_repo_builder.base import templates
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.ship.targets import server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import ALL

TEMPLATE = "deploy/routes.yml.jinja"
STABLE, CANARY = "stable", "canary"
"""Services of the two sides for HTTP; for gRPC they end in ``-grpc``. Traefik's metrics add ``@file``."""
SPLIT = "v2"
"""The weighted service, and the router to it."""
GATEWAY = "gateway"
HTTP_ENTRY, GRPC_ENTRY, GATEWAY_ENTRY = "http", "grpc", "gateway"
INNER_ENTRY = "inner"
"""Entry points of Traefik's static configuration. Gateways send their requests to the inner one: gRPC without
TLS and for any host name, so that these are weighted, too."""
BUCKETS = tuple(float(f"{0.001 * 1.1**step:.3g}") for step in range(110))
"""Seconds, 1 ms to 32 s: each bound is 10 % above the one before, so that a p99 has an error of at most that.
For ``metrics.prometheus.buckets`` of Traefik's static configuration."""
HEALTH_INTERVAL, HEALTH_TIMEOUT = "5s", "5s"
_GRPC_RULE = "PathPrefix(`/inference.GRPCInferenceService/`) || PathPrefix(`/grpc.health.v1.Health/`)"
_INFER_RULE = " || ".join(
    f"Path(`/inference.GRPCInferenceService/{method}`)" for method in ("ModelInfer", "ModelStreamInfer")
)
"""The longer of two rules that fit is Traefik's choice."""
_DOCUMENT = re.compile(r"^# trb-routes: (\{.*\})$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A server as Traefik reaches it."""

    http: str
    """``http://HOST:PORT``."""
    grpc: str = ""
    """``h2c://HOST:PORT``; empty: no gRPC."""


@dataclass(frozen=True, kw_only=True)
class Routes:
    """Everything that the file says."""

    stable: tuple[Backend, ...]
    canary: tuple[Backend, ...] = ()
    weight: int = 0
    """Percent of the requests that the canary gets."""
    ready: str = "/v2/health/ready"
    """Path of the health check."""
    body_limit: int
    """Bytes of the largest request over HTTP."""
    http: bool = True
    grpc: bool = True
    """Whether the entry point exists."""
    domain: str = ""
    """Host name that requests must have; empty: any."""
    gateways: tuple[str, ...] = ()
    """``http://HOST:PORT`` of trb gateway; empty: none."""
    certificate: str = ""
    key: str = ""
    """PEM files as Traefik's process reads them; empty: no TLS."""


def of(
    deployment: Deployment,
    stable: Sequence[Backend],
    *,
    gateways: Sequence[str] = (),
    certificate: str = "",
    key: str = "",
) -> Routes:
    """The routes of a deployment, all of them to the stable servers."""
    exposure = deployment.spec.exposure
    return Routes(
        stable=tuple(stable),
        ready=server.ready_path(deployment),
        body_limit=exposure.body_limit,
        http=bool(exposure.http_port),
        grpc=bool(exposure.grpc_port) and all(each.grpc for each in stable),
        domain=exposure.domain,
        gateways=tuple(gateways) if exposure.gateway_port else (),
        certificate=certificate,
        key=key,
    )


def render(
    deployment: Deployment,
    stable: Sequence[Backend],
    canary: Sequence[Backend] = (),
    weight: int = 0,
    *,
    gateways: Sequence[str] = (),
    certificate: str = "",
    key: str = "",
) -> str:
    """The file for a deployment; ``weight``: percent of the requests that the canary gets.

    ``certificate`` and ``key`` are paths that Traefik's process reads. Raises ``TrbError`` USAGE.
    """
    routes = of(deployment, stable, gateways=gateways, certificate=certificate, key=key)
    return text(Routes(**{**_shallow(routes), "canary": tuple(canary), "weight": weight}))


def text(routes: Routes) -> str:
    """The file. Raises ``TrbError`` USAGE for servers of one side with several HTTP ports."""
    if not 0 <= routes.weight <= ALL or (routes.weight and not routes.canary):
        raise ValueError(f"weight {routes.weight} of {len(routes.canary)} canary servers")
    sides = {STABLE: routes.stable, CANARY: routes.canary}
    present = {name: backends for name, backends in sides.items() if backends}
    weights = {STABLE: ALL - routes.weight, CANARY: routes.weight}
    kinds = [kind for kind, used in (("", routes.http), ("-grpc", routes.grpc)) if used]
    inner = routes.gateways and routes.grpc
    return templates.render(
        TEMPLATE,
        document=json.dumps(asdict(routes), sort_keys=True),
        entries=list(_entries(routes)),
        splits=[
            {
                "name": f"{SPLIT}{kind}",
                "sides": [{"name": f"{name}{kind}", "weight": weights[name]} for name in present],
            }
            for kind in kinds
        ],
        balancers=[
            _balancer(name, kind, backends, routes.ready)
            for kind in kinds
            for name, backends in present.items()
        ]
        + ([_balancer(INNER_ENTRY, "-grpc", routes.stable, routes.ready)] if inner else [])
        + ([_gateway(routes)] if routes.gateways else []),
        interval=HEALTH_INTERVAL,
        timeout=HEALTH_TIMEOUT,
        body_limit=routes.body_limit,
        tls={"certificate": routes.certificate, "key": routes.key} if routes.certificate else None,
    )


def _entries(routes: Routes) -> list[dict[str, Any]]:
    host = f"Host(`{routes.domain}`) && " if routes.domain else ""
    entries: list[dict[str, Any]] = []
    if routes.http:
        # Streams over gRPC must not be buffered; there the server itself has a limit.
        entries.append(
            {
                "router": SPLIT,
                "entry_point": HTTP_ENTRY,
                "rule": f"{host}PathPrefix(`/v2`)",
                "middlewares": ("content-type", "body-limit", "retry"),
                "service": SPLIT,
            }
        )
    if routes.grpc:
        entries.append(
            {
                "router": f"{SPLIT}-grpc",
                "entry_point": GRPC_ENTRY,
                "rule": f"{host}({_GRPC_RULE})" if host else _GRPC_RULE,
                "middlewares": ("retry",),
                "service": f"{SPLIT}-grpc",
            }
        )
    if routes.gateways and routes.grpc:
        # Of a gateway's calls only those that clients wait for are split and counted: it also asks for the
        # list of models, which fails without the admin key.
        entries += [
            {
                "router": f"{SPLIT}-{INNER_ENTRY}",
                "entry_point": INNER_ENTRY,
                "rule": _INFER_RULE,
                "middlewares": ("retry",),
                "service": f"{SPLIT}-grpc",
            },
            {
                "router": INNER_ENTRY,
                "entry_point": INNER_ENTRY,
                "rule": _GRPC_RULE,
                "middlewares": ("retry",),
                "service": f"{INNER_ENTRY}-grpc",
            },
        ]
    if routes.gateways:
        entries.append(
            {
                "router": GATEWAY,
                "entry_point": GATEWAY_ENTRY,
                "rule": f"{host}PathPrefix(`/`)",
                "middlewares": ("retry",),
                "service": GATEWAY,
            }
        )
    return entries


def _balancer(name: str, kind: str, backends: Sequence[Backend], ready: str) -> dict[str, Any]:
    """A side's servers. gRPC is checked at the HTTP port, whose answer is the endpoint's own."""
    ports = {urlsplit(each.http).port or 80 for each in backends}
    if kind and len(ports) > 1:
        raise TrbError(
            Code.USAGE,
            f"the {name} servers have several HTTP ports, and the health check of gRPC has one",
            where=", ".join(each.http for each in backends),
            remedy="give all servers of one side the same HTTP port",
        )
    return {
        "name": f"{name}{kind}",
        "path": ready,
        "port": ports.pop() if kind else 0,
        "urls": [each.grpc if kind else each.http for each in backends],
    }


def _gateway(routes: Routes) -> dict[str, Any]:
    return {"name": GATEWAY, "path": "/health", "port": 0, "urls": list(routes.gateways)}


def read(content: str, where: str) -> Routes:
    """The routes that a file states. Raises ``TrbError`` OUTPUT_FOREIGN, EDITED_FILE."""
    match = _DOCUMENT.search(content)
    if match is None:
        raise TrbError(
            Code.OUTPUT_FOREIGN,
            "is not a routes file of trb",
            where=where,
            remedy="name the routes.yml of trb export compose, or a file that is not there yet",
        )
    try:
        routes = stated(content, where)
        same = text(routes) == content
    except (*DAMAGED, TrbError, KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise TrbError(
            Code.EDITED_FILE,
            "was edited, or written by another version of trb",
            where=where,
            remedy="trb canary abort writes it anew with all traffic to the stable server, and keeps your "
            "edit beside it; change deploy.toml instead",
        )
    return routes


def stated(content: str, where: str) -> Routes:
    """The routes that a file's comment states, whatever was edited below. Raises ``TrbError`` EDITED_FILE."""
    match = _DOCUMENT.search(content)
    try:
        if match is None:
            raise ValueError
        return _routes(load_json(match[1]))
    except (*DAMAGED, KeyError, TypeError, ValueError):
        raise TrbError(
            Code.EDITED_FILE,
            "does not state its routes",
            where=where,
            remedy="write it anew (trb export compose --force)",
        ) from None


def _routes(document: Any) -> Routes:
    backends = {
        side: tuple(Backend(http=str(each["http"]), grpc=str(each["grpc"])) for each in document[side])
        for side in (STABLE, CANARY)
    }
    kept = {each.name: document[each.name] for each in fields(Routes)}
    return Routes(**{**kept, **backends, "gateways": tuple(document["gateways"])})


def _shallow(routes: Routes) -> dict[str, Any]:
    return {each.name: getattr(routes, each.name) for each in fields(routes)}
