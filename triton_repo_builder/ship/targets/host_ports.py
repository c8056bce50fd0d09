"""Ports of this machine that a stack publishes: free, or held by the same stack that already runs."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from contextlib import suppress

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.serve.docker import daemon
from triton_repo_builder.run.serve.processes import proc
from triton_repo_builder.ship.targets.facts import Deployment

FOLDER = "com.docker.compose.project.working_dir"
"""Label of Compose's containers: the folder of the file that they come from."""


def check(deployment: Deployment, host: str, ports: Mapping[str, int]) -> None:
    """Raise ``TrbError`` PORT_BUSY for the first port that somebody else listens on.

    ``ports``: by their key in ``[exposure]``. A ``host`` that is not of this machine is not tried.
    """
    taken = {key: port for key, port in ports.items() if _taken(host, port)}
    if not taken:
        return
    ours = _ours(deployment)
    for key, port in taken.items():
        if port in ours:
            continue
        pid = proc.listener(port)
        name = proc.name(pid) if pid else ""
        raise TrbError(
            Code.PORT_BUSY,
            f"'exposure.{key}' is {port}, which is in use" + (f" by {name} (process {pid})" if name else ""),
            where=str(deployment.file),
            remedy=f"stop that process, or set another exposure.{key}; 0 publishes none",
        )


def _taken(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
            tried.listen(1)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _ours(deployment: Deployment) -> set[int]:
    """Ports that containers of the stack in this folder publish; none without a Docker daemon."""
    label = f"{FOLDER}={deployment.output.resolve()}"
    with suppress(TrbError, ImportError), daemon.explained_errors():
        listed = daemon.connect().api.containers(filters={"label": label})
        return {port["PublicPort"] for each in listed for port in each["Ports"] if "PublicPort" in port}
    return set()
