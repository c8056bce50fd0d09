"""The Docker daemon: reached or not, and what it can do."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from triton_repo_builder.errors import Exit, TrbError

SOCKET = Path("/var/run/docker.sock")
TIMEOUT = 60
"""Seconds for one call; creating a container on a busy disk takes some."""


def connect() -> Any:
    """A client of the daemon that ``DOCKER_HOST`` or the user's default names. Raises ``TrbError``."""
    import requests

    import docker

    try:
        client = docker.from_env(timeout=TIMEOUT)
        client.ping()
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise refused(error) from None
    return client


def answers() -> bool:
    """Whether a daemon can be used."""
    if not os.environ.get("DOCKER_HOST") and not SOCKET.exists():
        return False
    try:
        connect().close()
    except TrbError:
        return False
    return True


def refused(error: Exception) -> TrbError:
    """Why there is no daemon to talk to, and what to do."""
    text = str(error)
    where = address()
    if "Permission denied" in text or "PermissionError" in text:
        message, remedy = (
            "this user may not use the Docker daemon",
            "add the user to the group docker (sudo usermod -aG docker $USER, then log in again), or use "
            "rootless Docker",
        )
    elif os.environ.get("DOCKER_HOST"):
        message, remedy = (
            f"the Docker daemon does not answer: {_short(text)}",
            "is DOCKER_HOST right, and does a daemon listen there? unset it for the daemon of this machine",
        )
    elif "FileNotFoundError" in text or "No such file" in text or "Connection refused" in text:
        message, remedy = (
            "no Docker daemon runs",
            "start it (systemctl start docker, or Docker Desktop), or use --engine embedded",
        )
    else:
        message, remedy = f"the Docker daemon does not answer: {_short(text)}", "see: docker version"
    return TrbError(Exit.DAEMON_UNREACHABLE, message, where=where, remedy=remedy)


def gone() -> TrbError:
    """The daemon stopped while a server ran."""
    return TrbError(
        Exit.SERVER_DIED,
        "the Docker daemon does not answer any more, and with it goes the server",
        where=address(),
        remedy="start it again (systemctl start docker); 'trb stop --all' then removes what is left",
    )


def address() -> str:
    """Where the daemon is looked for."""
    return os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"


def remote_host() -> str:
    """Name of the machine that the daemon runs on; empty for this one."""
    parts = urlsplit(os.environ.get("DOCKER_HOST", ""))
    host = parts.hostname or ""
    return "" if parts.scheme not in ("tcp", "http", "https", "ssh") or host in _LOCAL else host


_LOCAL = ("localhost", "127.0.0.1", "::1")


@cache
def rootless(client: Any) -> bool:
    """Whether user ids inside a container are others than those of the machine."""
    options = client.info().get("SecurityOptions") or []
    return any(str(option).startswith(("name=rootless", "name=userns")) for option in options)


def _short(text: str) -> str:
    """An error of urllib3 names its cause last."""
    return text.rsplit("): ", 1)[-1].strip("()'\" ") or text
