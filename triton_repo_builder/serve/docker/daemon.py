"""The Docker daemon: where it is, whether it answers, and what to say when it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from triton_repo_builder.errors import Code, TrbError

SOCKET = Path("/var/run/docker.sock")
TIMEOUT = 60
"""Seconds for one call; creating a container on a busy disk takes some."""
_LOCAL = ("localhost", "127.0.0.1", "::1")


def errors() -> tuple[type[Exception], ...]:
    """What the docker package raises: its own errors, and those of its connection."""
    import requests

    import docker

    return (docker.errors.DockerException, requests.RequestException)


def connect() -> Any:
    """A client of the daemon that ``docker`` itself would use. Raises ``TrbError``."""
    import docker

    try:
        if os.environ.get("DOCKER_HOST"):
            client = docker.from_env(timeout=TIMEOUT)
        else:
            context = _context()
            client = docker.DockerClient(
                base_url=address(), tls=getattr(context, "TLSConfig", None) or False, timeout=TIMEOUT
            )
        client.ping()
    except errors() as error:
        raise refused(error) from None
    except OSError as error:
        raise refused(error) from None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise TrbError(
            Code.DAEMON_UNREACHABLE,
            f"the settings for Docker cannot be understood: {error}",
            where=os.environ.get("DOCKER_HOST") or str(_settings()),
            remedy="correct DOCKER_HOST (unix:///path or tcp://host:port) or that file",
        ) from None
    return client


def stored_credentials(registry: str) -> dict[str, str]:
    """What ``docker login`` stored for a registry, credential helpers included; empty if nothing."""
    import docker

    try:
        entry = docker.auth.load_config().resolve_authconfig(registry)
    except docker.errors.DockerException:
        return {}
    return {key: value for key, value in (entry or {}).items() if isinstance(value, str)}


def wanted() -> bool:
    """Whether anything says that there should be a daemon."""
    return bool(os.environ.get("DOCKER_HOST")) or not address().endswith(str(SOCKET)) or SOCKET.exists()


@contextmanager
def talking() -> Iterator[None]:
    """Turns what the docker package raises, wherever nothing better is known, into a ``TrbError``."""
    known = errors()  # before: an interrupt of its first import would be hidden by a second one below
    try:
        yield
    except known as error:
        import requests

        if isinstance(error, requests.RequestException):
            raise gone() from None
        raise TrbError(
            Code.DAEMON_UNREACHABLE,
            f"Docker refuses: {getattr(error, 'explanation', None) or error}",
            where=address(),
            remedy="see the daemon's log, and docker info",
        ) from None


def refused(error: Exception) -> TrbError:
    """Why there is no daemon to talk to, and what to do."""
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        message, remedy = (
            "this user may not use the Docker daemon",
            "add the user to the group docker (sudo usermod -aG docker $USER, then log in again), or use "
            "rootless Docker",
        )
    elif "paramiko" in text:
        message, remedy = (
            "DOCKER_HOST=ssh://… needs a package that is not installed",
            "pip install 'docker[ssh]', or make a tunnel and use tcp://",
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
    return TrbError(Code.DAEMON_UNREACHABLE, message, where=address(), remedy=remedy)


def gone() -> TrbError:
    """The daemon went away while it was needed."""
    return TrbError(
        Code.SERVER_DIED,
        "the Docker daemon does not answer any more, and with it goes the server",
        where=address(),
        remedy="start it again (systemctl start docker); 'trb stop --all' then removes what is left",
    )


def address() -> str:
    """Where the daemon is looked for, in docker's own order: DOCKER_HOST, the current context, a socket."""
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    host = getattr(_context(), "Host", "")
    if host:
        return str(host)
    rootless_socket = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent") / "docker.sock"
    return f"unix://{rootless_socket if not SOCKET.exists() and rootless_socket.exists() else SOCKET}"


def _context() -> Any:
    """The context that ``docker context use`` chose; None for the default."""
    from docker.context import ContextAPI

    try:
        context = ContextAPI.get_current_context()
    except Exception:
        # Whatever a broken settings file leads to is reported where the connection is made.
        return None
    return None if context is None or context.name == "default" else context


def _settings() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def remote_host() -> str:
    """Name of the machine that the daemon runs on; empty for this one."""
    parts = urlsplit(address())
    host = parts.hostname or ""
    return "" if parts.scheme not in ("tcp", "http", "https", "ssh") or host in _LOCAL else host


def rootless(client: Any) -> bool:
    """Whether user ids inside a container are others than those of the machine."""
    options = client.info().get("SecurityOptions") or []
    return any(str(option).startswith(("name=rootless", "name=userns")) for option in options)


def _short(text: str) -> str:
    """An error of urllib3 names its cause last."""
    return text.rsplit("): ", 1)[-1].strip("()'\" ") or text
