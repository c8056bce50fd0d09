"""The HTTP server that runs the gateway."""

from __future__ import annotations

import ipaddress
import math
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.gateway.options import GRACE, GatewayOptions

if TYPE_CHECKING:
    from triton_repo_builder.run.gateway.mapping import GatewayMap

EXTRA = "pip install 'triton_repo_builder[gateway]'"
PACKAGES = ("orjson", "uvicorn", "uvloop", "httptools", "hpack", "prometheus_client")
BACKLOG = 1024
"""Connections that wait to be accepted."""
MOST_FILES = 16_384
OTHER_FILES = 128
"""Files besides the clients' connections."""


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

    Raises ``TrbError``: ENGINE_MISSING without the packages, PORT_BUSY; NOT_FOUND, USAGE of the map,
    the repository or the API keys.
    """
    check_packages()
    import uvicorn

    from triton_repo_builder.run.gateway.app import App
    from triton_repo_builder.run.gateway.discovery import Discovery
    from triton_repo_builder.run.gateway.gateway import Gateway
    from triton_repo_builder.run.gateway.http_server import IDLE_SECONDS, Connection, Server
    from triton_repo_builder.run.gateway.triton import Triton

    discovery = Discovery(repo=where.repo, map=read_map(options.map))
    gateway = Gateway(Triton(where.triton), discovery, options)
    if where.repo is not None:
        check_repository(where.repo)
    listener, url = listening(where)
    if gateway.keys is None and not is_loopback(where.host):
        gateway.log.warning(f"everybody who reaches {url} can use it: --api-keys FILE asks for a key")
    Connection.seconds = options.timeout
    Connection.most = most_connections()
    config = uvicorn.Config(
        App(gateway),
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",  # the application writes its own failures; a second Ctrl-C is none
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=math.ceil(options.timeout + GRACE),
    )
    Server(config, gateway, listener, lambda: ready(url)).run(sockets=[listener])


def read_map(path: Path | None) -> GatewayMap:
    """The file of ``--map``. Raises ``TrbError`` NOT_FOUND, USAGE."""
    from triton_repo_builder.run.gateway import mapping, routes

    return mapping.read(path, frozenset(route.path for route in routes.ALL))


def check_repository(repo: Path) -> None:
    """Raises ``TrbError`` for a folder or a manifest that cannot be read: later it is a warning."""
    try:
        next(repo.iterdir(), None)
    except OSError as error:
        raise files.unreadable(repo, error) from None
    repository.read_manifest(repo)


def check_packages() -> None:
    """Raises ``TrbError`` ENGINE_MISSING without a package of the extra ``gateway``."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise TrbError(Code.ENGINE_MISSING, f"the gateway needs the package {name}", remedy=EXTRA)


def listening(where: Listening) -> tuple[socket.socket, str]:
    """The listening socket and its URL. Raises ``TrbError`` PORT_BUSY."""
    listener = socket.socket(socket.AF_INET6 if ":" in where.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((where.host, where.port))
        listener.listen(BACKLOG)
    except OSError as error:
        raise TrbError(
            Code.PORT_BUSY,
            f"port {where.port} of {where.host}: {error.strerror}",
            remedy="choose another port; 0 is any free one",
        ) from None
    host = f"[{where.host}]" if ":" in where.host else where.host
    return listener, f"http://{host}:{listener.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def most_connections() -> int:
    """Connections that the limit of open files allows, which is raised as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MOST_FILES), hard))
        soft = min(hard, MOST_FILES)
    return max(64, soft - OTHER_FILES)
