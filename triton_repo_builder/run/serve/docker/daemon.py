"""The one door to the ``docker`` package: find the daemon, talk to it, explain why it does not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client.values import LOOPBACK

SOCKET = Path("/var/run/docker.sock")
TIMEOUT = 60
"""Seconds for one call; creating a container on a busy disk takes some."""


def errors() -> tuple[type[Exception], ...]:
    """Errors that the docker package raises, including connection errors."""
    import requests

    import docker

    return (docker.errors.DockerException, requests.RequestException)


def answer_errors() -> tuple[type[Exception], ...]:
    """The daemon answered with an error, or the connection failed."""
    import requests

    import docker

    return (docker.errors.APIError, requests.RequestException)


def api_error() -> type[Exception]:
    """The daemon answered with an error; ``explanation`` has its text."""
    import docker

    return docker.errors.APIError  # type: ignore[no-any-return]


def not_found() -> type[Exception]:
    """No container, image or volume of that name."""
    import docker

    return docker.errors.NotFound  # type: ignore[no-any-return]


def read_timeout() -> type[Exception]:
    """The daemon did not answer within the time limit of the call."""
    import requests

    return requests.exceptions.ReadTimeout  # type: ignore[no-any-return]


def is_client_error(error: Exception) -> bool:
    """Whether the daemon answered with a 4xx status."""
    return bool(getattr(error, "is_client_error", bool)())


def explanation(error: Exception) -> str:
    """The daemon's own text of an error."""
    return str(getattr(error, "explanation", None) or error)


def mount(target: str, source: str, kind: str) -> Any:
    """A read-only mount; ``kind``: ``bind`` or ``volume``."""
    from docker.types import Mount

    return Mount(target, source, type=kind, read_only=True)


def ulimit(name: str, value: int) -> Any:
    """A resource limit, soft and hard."""
    from docker.types import Ulimit

    return Ulimit(name=name, soft=value, hard=value)


def gpu_request(devices: tuple[str, ...]) -> Any:
    """A request for these GPUs; without any for all."""
    from docker.types import DeviceRequest

    if devices:
        return DeviceRequest(device_ids=list(devices), capabilities=[["gpu"]])
    return DeviceRequest(count=-1, capabilities=[["gpu"]])


def stored_credentials(registry: str) -> dict[str, str]:
    """Credentials that ``docker login`` stored for a registry, credential helpers included; or empty."""
    import docker

    try:
        entry = docker.auth.load_config().resolve_authconfig(registry)
    except docker.errors.DockerException:
        return {}
    return {key: value for key, value in (entry or {}).items() if isinstance(value, str)}


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
        raise unreachable(error) from None
    except OSError as error:
        raise unreachable(error) from None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise TrbError(
            Code.DAEMON_UNREACHABLE,
            f"invalid settings for Docker: {error}",
            where=os.environ.get("DOCKER_HOST") or str(_settings()),
            remedy="correct DOCKER_HOST (unix:///path or tcp://host:port) or that file",
        ) from None
    return client


def configured() -> bool:
    """Whether DOCKER_HOST, a context or a socket points to a daemon."""
    return bool(os.environ.get("DOCKER_HOST")) or not address().endswith(str(SOCKET)) or SOCKET.exists()


@contextmanager
def explained_errors() -> Iterator[None]:
    """Turn other errors of the docker package into a ``TrbError``."""
    kinds = errors()  # before: an interrupt of its first import would be hidden by a second one below
    try:
        yield
    except kinds as error:
        import requests

        if isinstance(error, requests.RequestException):
            raise gone() from None
        raise TrbError(
            Code.DAEMON_UNREACHABLE,
            f"Docker refuses: {explanation(error)}",
            where=address(),
            remedy="see the daemon's log, and docker info",
        ) from None


def unreachable(error: Exception) -> TrbError:
    """Error for a daemon that cannot be used, with a remedy."""
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
            "no Docker daemon is running",
            "start it (systemctl start docker, or Docker Desktop); servers also run with --engine embedded",
        )
    else:
        message, remedy = f"the Docker daemon does not answer: {_short(text)}", "see: docker version"
    return TrbError(Code.DAEMON_UNREACHABLE, message, where=address(), remedy=remedy)


def gone() -> TrbError:
    """Error for a daemon that stopped answering during the work."""
    return TrbError(
        Code.SERVER_DIED,
        "the Docker daemon stopped answering, and the server is lost with it",
        where=address(),
        remedy="start it again (systemctl start docker); 'trb stop --all' then removes what is left",
    )


def address() -> str:
    """Address of the daemon, in docker's own order: DOCKER_HOST, the current context, a socket."""
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
        # Errors of a broken settings file are reported when connecting.
        return None
    return None if context is None or context.name == "default" else context


def _settings() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def remote_host() -> str:
    """Host name of the daemon's machine; empty for this one."""
    parts = urlsplit(address())
    host = parts.hostname or ""
    return "" if parts.scheme not in ("tcp", "http", "https", "ssh") or host in LOOPBACK else host


def rootless(client: Any) -> bool:
    """Whether user ids in a container differ from user ids on the machine."""
    options = client.info().get("SecurityOptions") or []
    return any(str(option).startswith(("name=rootless", "name=userns")) for option in options)


def _short(text: str) -> str:
    """Cause of a urllib3 error, which comes last in its text."""
    return text.rsplit("): ", 1)[-1].strip("()'\" ") or text
