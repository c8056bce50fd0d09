"""Where a server that is named by its HTTP url listens for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from triton_repo_builder.serve.engine import Urls

LOCAL = ("127.0.0.1", "localhost", "::1")
HELP = (
    "Its gRPC address.  [default: of what 'trb serve --detach' started there, else the url's port + 1; "
    "8001 for a url without a port]"
)
METRICS_HELP = (
    "Its metrics page, for GPUs.  [default: as for gRPC, the url's port + 2; 8002 for a url without a port]"
)
PORTS = 8000, 65533
"""Triton's HTTP port; the last one that has two above it."""


def of(url: str, grpc_url: str | None = None, metrics_url: str | None = None) -> Urls:
    """All addresses of the server whose HTTP url is given; ``BadParameter`` where it is none.

    Triton's own ports are 8000, 8001, 8002: servers at other ports mostly keep that distance. A guess, which
    bench and smoke check before they rely on it.
    """
    from urllib.parse import urlsplit

    from triton_repo_builder.serve.engine import Urls

    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        host, port, valid = parts.hostname, parts.port, parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        host, port, valid = None, None, False
    if not host or not valid:
        raise click.BadParameter(f"'{url}' is no url like http://localhost:8000", param_hint="--url")
    ours = _ours(port or 80) if host in LOCAL and not (grpc_url and metrics_url) else {}
    secure = "grpcs://" if parts.scheme == "https" else ""
    name = f"[{host}]" if ":" in host else host
    first = port if port and port <= PORTS[1] else PORTS[0]
    return Urls(
        http=full,
        grpc=grpc_url or ours.get("grpc") or f"{secure}{name}:{first + 1}",
        metrics=metrics_url or ours.get("metrics") or f"http://{name}:{first + 2}/metrics",
    )


def _ours(port: int) -> dict[str, str]:
    """What a server in the background of this machine listens at, by its HTTP port; empty where none does."""
    from urllib.parse import urlsplit

    from triton_repo_builder.errors import TrbError
    from triton_repo_builder.serve.background import registry

    try:
        entries = registry.sweep()[0]
    except TrbError:  # no folder to keep notes in, hence no notes
        return {}
    return next((entry.urls for entry in entries if urlsplit(entry.urls["http"]).port == port), {})
