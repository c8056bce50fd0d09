"""Refusals of Docker to create or start a container, explained with a remedy."""

from __future__ import annotations

from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.serve.docker import daemon


def create(client: Any, image: Any, settings: dict[str, Any]) -> bool:
    """Create a container; False if the daemon cannot see the folder to mount. Raises ``TrbError``."""
    try:
        client.containers.create(image.id, **settings)
    except daemon.api_error() as error:
        text = daemon.explanation(error)
        if any(words in text.lower() for words in ("bind source path does not exist", "mounts denied")):
            return False
        raise _error(text) from None
    return True


def start(client: Any, container: str) -> bool:
    """Start a container; False if the daemon itself may not raise the limits. Raises ``TrbError``."""
    try:
        client.api.start(container)
    except daemon.api_error() as error:
        text = daemon.explanation(error)
        if "setting rlimit" in text:
            return False
        raise _error(text) from None
    return True


def ended(error: TrbError, log: str, image: str) -> TrbError:
    """Add a remedy for a container that ended before its server answered."""
    if "Permission denied" in log or "Operation not permitted" in log:
        error.remedy = f"{image} may not run without its own user: try --container-user image; {error.remedy}"
    elif "not found" in error.message:
        error.remedy = f"{image} has no tritonserver; name another image with --image"
    return error


def _error(text: str) -> TrbError:
    lower = text.lower()
    if "port is already allocated" in lower or "address already in use" in lower:
        return TrbError(
            Code.PORT_BUSY,
            f"a port is in use: {text}",
            remedy="take other ports (--http-port 0 --grpc-port 0 --metrics-port 0)",
        )
    if "executable file not found" in lower or "no such file or directory: unknown" in lower:
        return TrbError(
            Code.IMAGE_UNAVAILABLE,
            f"the image has no tritonserver on its PATH: {text}",
            remedy="name an image of Triton with --image, or make one with 'trb image build'",
        )
    if "could not select device driver" in lower or "nvidia" in lower:
        return TrbError(
            Code.GPU_UNAVAILABLE,
            f"Docker cannot give the GPUs: {text}",
            where="--gpus",
            remedy="install the nvidia-container-toolkit and restart Docker, or use --gpus none",
        )
    if "unable to find user" in lower or "no matching entries in passwd" in lower:
        return TrbError(
            Code.USAGE, f"the image has no such user: {text}", where="--container-user", remedy="UID:GID"
        )
    if "no space left" in lower:
        return TrbError(
            Code.DISK_FULL, f"the disk of the Docker daemon is full: {text}", remedy="docker system df"
        )
    return TrbError(
        Code.DAEMON_UNREACHABLE, f"Docker refuses: {text}", remedy="see the daemon's log; docker info"
    )
