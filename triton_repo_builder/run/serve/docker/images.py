"""Choose the image that a server runs in, and pull it."""

from __future__ import annotations

import time
from typing import Any

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.releases import Release
from triton_repo_builder.run.options import ContainerOptions
from triton_repo_builder.run.serve.docker import daemon
from triton_repo_builder.run.serve.engine import Progress

OFFICIAL = "nvcr.io/nvidia/tritonserver:{release}-py3"
SLIM = "trb-tritonserver"
"""Default name of ``trb image build``'s image."""
SERVER_LABEL = "io.github.triton-repo-builder.server"
"""Label with the version of tritonserver."""
EVERY = 0.5
BAR = 24


def choose(options: ContainerOptions, release: Release | None = None) -> str:
    """The user's image, or the official one of a release: the user's, else ``release``, else the newest."""
    if options.image:
        return options.image
    if options.release:
        release = releases.get(options.release)
    return OFFICIAL.format(release=(release or releases.newest()).name)


def server_version(image: Any) -> str:
    """The version of tritonserver in an image's label, NVIDIA's or trb's; empty without one."""
    labels = image.labels or {}
    return str(labels.get("com.nvidia.tritonserver.version") or labels.get(SERVER_LABEL) or "")


def provide(client: Any, name: str, pull: str, tell: Progress, other: str = "--image") -> Any:
    """The image, pulled if necessary. Raises ``TrbError``; ``other``: the option that names another image."""
    try:
        if pull != "always":
            return client.images.get(name)
    except daemon.not_found():
        if pull == "never":
            raise TrbError(
                Code.IMAGE_UNAVAILABLE,
                "the image is not on this machine, and --pull never does not fetch it",
                where=name,
                remedy=f"docker pull {name}, or leave --pull out",
            ) from None
    except daemon.api_error() as error:
        if daemon.is_client_error(error):
            raise TrbError(
                Code.USAGE,
                f"invalid image name '{name}': {daemon.explanation(error)}",
                where=other,
                remedy="registry/name:tag in lower case, or an image's id",
            ) from None
        raise
    _pull(client, name, tell, other)
    return client.images.get(name)


def _pull(client: Any, name: str, tell: Progress, other: str) -> None:
    tell(f"pulling {name}")
    reported = 0.0
    sizes: dict[str, tuple[int, int]] = {}
    try:
        for event in client.api.pull(name, stream=True, decode=True):
            if "error" in event:
                raise failed(name, str(event["error"]), other)
            detail = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and detail.get("total"):
                sizes[event["id"]] = (int(detail["current"]), int(detail["total"]))
            elif event.get("status") in ("Download complete", "Pull complete") and event.get("id") in sizes:
                sizes[event["id"]] = (sizes[event["id"]][1], sizes[event["id"]][1])
            if sizes and time.monotonic() - reported > EVERY:
                reported = time.monotonic()
                tell(f"pulling {name}  {bar(*map(sum, zip(*sizes.values(), strict=True)))}")
    except daemon.answer_errors() as error:
        raise failed(name, daemon.explanation(error), other) from None


def bar(done: int, total: int) -> str:
    """``━━━━╸───  43 %  1.9 of 4.4 GB``."""
    share = min(1.0, done / total) if total else 1.0
    full = int(share * BAR)
    return f"{'━' * full}{'─' * (BAR - full)} {share:4.0%}  {done / 1e9:.1f} of {total / 1e9:.1f} GB"


def failed(name: str, text: str, other: str = "--image") -> TrbError:
    """Explain a failed pull."""
    lower = text.lower()
    first = name.split("/", 1)[0] if "/" in name else ""
    registry = first if "." in first or ":" in first or first == "localhost" else "docker.io"
    if "no space left" in lower:
        message, remedy = (
            "the disk of the Docker daemon is full",
            "free some: docker system df, docker image prune",
        )
    elif any(word in lower for word in ("unauthorized", "denied", "authentication required")):
        message, remedy = (
            f"the registry refuses it: {text}",
            f"docker login {registry}; is the name right?",
        )
    elif any(
        word in lower for word in ("manifest unknown", "not found", "no such image", "invalid reference")
    ):
        message, remedy = (
            f"there is no such image: {text}",
            f"is the name or tag right? releases that trb knows: {', '.join(releases.load())}",
        )
    else:
        message, remedy = (
            f"the registry {registry} cannot be reached: {text}",
            f"check the network and the daemon's proxy settings, or name a local image with {other} "
            "(docker images)"
            + ("; 'trb image build' makes a slim one from PyPI packages" if other == "--image" else ""),
        )
    return TrbError(Code.IMAGE_UNAVAILABLE, message, where=name, remedy=remedy)
