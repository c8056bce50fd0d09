"""The arguments that a container is created with: command, mounts, ports, limits, user, GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve import admin_apis, tracing
from triton_repo_builder.run.serve.docker import cleanup, daemon, volume
from triton_repo_builder.run.serve.processes import shared_memory
from triton_repo_builder.run.serve.processes.ports import DEFAULTS

LIMITS = {"memlock": -1, "stack": 64 << 20}
"""NVIDIA's limits for its containers: unlimited pinned memory, a stack for TensorRT."""
NOT_ROOT = "1000:1000"
"""The server's user if ``trb`` itself runs as root; the official image has this user."""
CURRENT = "/opt/tritonserver/empty"
"""The server's current folder, from which its Python processes import first. Docker makes it if need be; the
image may name another, such as the folder of the models."""
USER = re.compile(r"\d+(:\d+)?|image")
GPU_NUMBERS = re.compile(r"\d+(,\d+)*")


def command(options: ServeOptions) -> list[str]:
    """The server's command line inside the container."""
    return [
        "tritonserver",
        f"--model-repository={volume.MODELS}",
        "--model-control-mode=explicit",
        *(f"--{kind}-port={number}" for kind, number in DEFAULTS.items()),
        f"--exit-timeout-secs={options.exit_timeout}",
        *(["--log-verbose=1"] if options.verbose else []),
        *admin_apis.arguments(options),
        *tracing.arguments(options),
        *options.extra,
    ]


def user(image: Any, requested: str) -> str:
    """``UID:GID`` or a name to run as: root only if requested; empty for the image's own user."""
    if requested and not USER.fullmatch(requested):
        raise TrbError(
            Code.USAGE,
            f"invalid user '{requested}'",
            where="--container-user",
            remedy="UID, UID:GID in numbers, or image for the image's own",
        )
    image_user = _image_user(image)
    if requested == "image":
        return ""
    if requested or (image_user and image_user.partition(":")[0] not in ("root", "0")):
        return requested or image_user
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else NOT_ROOT


def uid(image: Any, user: str) -> int | None:
    """The user's number; None if only the image knows it."""
    name = (user or _image_user(image) or "0").partition(":")[0]
    return int(name) if name.isdigit() else 0 if name == "root" else None


def _image_user(image: Any) -> str:
    return str(image.attrs.get("Config", {}).get("User") or "")


def gpus(client: Any, requested: str) -> list[Any]:
    """Device requests for ``all``, ``none``, ``auto`` or numbers (``0,1``). Raises ``TrbError``."""
    if requested == "none":
        return []
    if requested not in ("auto", "all") and not GPU_NUMBERS.fullmatch(requested):
        raise TrbError(
            Code.USAGE,
            f"invalid GPUs '{requested}'",
            where="--gpus",
            remedy="auto, all, none, or numbers such as 0,1",
        )
    if not offers_gpus(client):
        if requested == "auto":
            return []
        raise TrbError(
            Code.GPU_UNAVAILABLE,
            "Docker cannot give GPUs to containers on this machine",
            where="--gpus",
            remedy="install the NVIDIA driver and the nvidia-container-toolkit "
            "(nvidia-ctk runtime configure --runtime=docker, then restart Docker), or use --gpus none",
        )
    return [daemon.gpu_request(() if requested in ("auto", "all") else tuple(requested.split(",")))]


def offers_gpus(client: Any) -> bool:
    """Whether the daemon has NVIDIA's runtime, or devices by the Container Device Interface."""
    info = client.info()
    devices = info.get("DiscoveredDevices") or []
    return "nvidia" in (info.get("Runtimes") or {}) or any(
        str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in devices
    )


def arguments(
    repo: Repository,
    options: ServeOptions,
    devices: list[Any],
    limits: Mapping[str, int],
    user: str,
    source: str,
    name: str,
) -> dict[str, Any]:
    """Arguments of ``containers.create``; ``source`` is a folder (it begins with /) or a volume's name."""
    numbers = {"http": options.http_port, "grpc": options.grpc_port, "metrics": options.metrics_port}
    mount_kind = "bind" if source.startswith("/") else "volume"
    return {
        "name": name,
        "command": command(options),
        "mounts": [daemon.mount(volume.MODELS, source, mount_kind)],
        "ports": {
            f"{DEFAULTS[kind]}/tcp": (options.host, number or None) for kind, number in numbers.items()
        },
        "shm_size": shared_memory.needed(repo),
        "ulimits": [daemon.ulimit(limit, value) for limit, value in limits.items()],
        "user": user or None,
        "working_dir": CURRENT,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "device_requests": devices or None,
        "labels": cleanup.labels(repo.path.resolve()),
        "environment": {"PYTHONDONTWRITEBYTECODE": "1", **tracing.environment(options)},
    }
