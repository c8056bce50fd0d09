"""The HTTP server that runs the gateway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.gateway.options import GatewayOptions

EXTRA = "pip install 'triton_repo_builder[gateway]'"
GRACE = 30
"""Seconds that requests under way get when the gateway is stopped."""


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a gateway is to be found, and what is behind it."""

    host: str = "127.0.0.1"
    port: int = 9000
    triton: str
    """Triton's gRPC address."""
    repo: Path | None = None


def run(where: Listening, options: GatewayOptions, ready: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or SIGINT. ``ready`` gets the gateway's URL.

    Raises ``TrbError``: ENGINE_MISSING without the packages, PORT_BUSY, USAGE of the map.
    """
    try:
        import orjson  # noqa: F401
        import uvicorn
        import uvloop  # noqa: F401
    except ImportError as missing:
        raise TrbError(
            Code.ENGINE_MISSING, f"the gateway needs the package {missing.name}", remedy=EXTRA
        ) from None
    import socket

    from triton_repo_builder.run.gateway import mapping, routes
    from triton_repo_builder.run.gateway.app import App
    from triton_repo_builder.run.gateway.discovery import Discovery
    from triton_repo_builder.run.gateway.gateway import Gateway
    from triton_repo_builder.run.gateway.triton import Triton

    paths = frozenset(route.path for route in routes.ALL)
    discovery = Discovery(repo=where.repo, map=mapping.read(options.map, paths))
    listener = socket.socket(socket.AF_INET6 if ":" in where.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((where.host, where.port))
    except OSError as error:
        raise TrbError(
            Code.PORT_BUSY,
            f"port {where.port} of {where.host}: {error.strerror}",
            remedy="choose another port; 0 is any free one",
        ) from None
    host = f"[{where.host}]" if ":" in where.host else where.host
    url = f"http://{host}:{listener.getsockname()[1]}"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                ready(url)

    config = uvicorn.Config(
        App(Gateway(Triton(where.triton), discovery, options)),
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    Server(config).run(sockets=[listener])
