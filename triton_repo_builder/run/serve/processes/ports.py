"""Ports: Triton's own, the user's, or free ones. A busy port is reported with its process."""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.processes import proc

DEFAULTS = {"http": 8000, "grpc": 8001, "metrics": 8002}


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Three ports that were free a moment ago."""

    http: int
    grpc: int
    metrics: int

    def urls(self, host: str) -> Urls:
        """The host by which a client on this machine reaches the server."""
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        name = f"[{name}]" if ":" in name else name
        return Urls(
            http=f"http://{name}:{self.http}",
            grpc=f"{name}:{self.grpc}",
            metrics=f"http://{name}:{self.metrics}/metrics",
        )


def choose(options: ServeOptions) -> Ports:
    """The ports to use. Raises ``TrbError`` if one is busy."""
    requested = {"http": options.http_port, "grpc": options.grpc_port, "metrics": options.metrics_port}
    _check_distinct(requested)
    numbers = {}
    with contextlib.ExitStack() as held:
        for kind, number in requested.items():
            used = held.enter_context(_bind(options.host, kind, number))
            numbers[kind] = int(used.getsockname()[1])
    return Ports(**numbers)


def one(host: str, kind: str, port: int) -> int:
    """A port that was free a moment ago, ``port`` itself unless that is 0. Raises ``TrbError``."""
    with _bind(host, kind, port) as used:
        return int(used.getsockname()[1])


def _check_distinct(requested: dict[str, int]) -> None:
    used: dict[int, str] = {}
    for kind, port in requested.items():
        if port and port in used:
            raise TrbError(
                Code.PORT_BUSY,
                f"{port} is the port for both {used[port]} and {kind}",
                where=f"--{kind}-port",
                remedy="give each a port of its own (0 picks a free one)",
            )
        used[port] = kind


def _bind(host: str, kind: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # As the server does, so that a port whose last connection just closed counts as free.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(1)
    except (OSError, OverflowError) as error:
        bound.close()
        raise _refused(host, kind, port, error) from None
    return bound


def _refused(host: str, kind: str, port: int, error: Exception) -> TrbError:
    number = error.errno if isinstance(error, OSError) else None
    option = f"--{kind}-port"
    if number == errno.EADDRINUSE:
        return TrbError(
            Code.PORT_BUSY,
            f"port {port} is in use{_holder(port)}",
            where=option,
            remedy=f"stop that process, or take another port with {option} (0 picks a free one)",
        )
    if number == errno.EACCES:
        return TrbError(
            Code.PORT_BUSY,
            f"this user may not listen on port {port}",
            where=option,
            remedy="take a port of 1024 or more (0 picks a free one)",
        )
    if isinstance(error, OverflowError):
        return TrbError(Code.USAGE, f"invalid port {port}", where=option, remedy="a port is 0 to 65535")
    return TrbError(
        Code.USAGE,
        f"cannot listen on '{host}': {error}",
        where="--host",
        remedy="name an address of this machine; 127.0.0.1 is reached from here only, 0.0.0.0 from anywhere",
    )


def _holder(port: int) -> str:
    pid = proc.listener(port)
    name = proc.name(pid) if pid else ""
    return f" by {name} (process {pid})" if name else ""
