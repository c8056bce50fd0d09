"""With what a container is created."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.repository import Repository
from triton_repo_builder.serve.docker import labels, volume
from triton_repo_builder.serve.engine import ServeOptions
from triton_repo_builder.serve.processes import shared_memory
from triton_repo_builder.serve.processes.ports import DEFAULTS

LIMITS = {"memlock": -1, "stack": 64 << 20}
"""What NVIDIA gives its containers: pinned memory without limit, a stack for TensorRT."""
NOBODY = "1000:1000"
"""Who runs the server where ``trb`` itself runs as root; the official image knows this user."""
USER = re.compile(r"\d+(:\d+)?|image")


def command(options: ServeOptions) -> list[str]:
    """The server's command line inside the container."""
    return [
        "tritonserver",
        f"--model-repository={volume.MODELS}",
        "--model-control-mode=explicit",
        *(f"--{kind}-port={number}" for kind, number in DEFAULTS.items()),
        f"--exit-timeout-secs={options.exit_timeout}",
        *([f"--log-verbose={options.log_verbose}"] if options.log_verbose else []),
        *options.extra,
    ]


def user(image: Any, wanted: str) -> str:
    """``UID:GID`` or a name to run as: never root unless asked for; empty for the image's own user."""
    if wanted and not USER.fullmatch(wanted):
        raise TrbError(
            Code.USAGE,
            f"'{wanted}' is no user",
            where="--container-user",
            remedy="UID, UID:GID in numbers, or image for the image's own",
        )
    own = _own(image)
    if wanted == "image":
        return ""
    if wanted or (own and own.partition(":")[0] not in ("root", "0")):
        return wanted or own
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else NOBODY


def uid(image: Any, user: str) -> int | None:
    """The number of that user; None where only the image knows it."""
    name = (user or _own(image) or "0").partition(":")[0]
    return int(name) if name.isdigit() else 0 if name == "root" else None


def _own(image: Any) -> str:
    return str(image.attrs.get("Config", {}).get("User") or "")


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
    from docker.types import Mount, Ulimit

    wanted = {"http": options.http_port, "grpc": options.grpc_port, "metrics": options.metrics_port}
    kind = "bind" if source.startswith("/") else "volume"
    return {
        "name": name,
        "command": command(options),
        "mounts": [Mount(volume.MODELS, source, type=kind, read_only=True)],
        "ports": {
            f"{DEFAULTS[kind]}/tcp": (options.host, (DEFAULTS[kind] if number is None else number) or None)
            for kind, number in wanted.items()
        },
        "shm_size": shared_memory.needed(repo),
        "ulimits": [Ulimit(name=limit, soft=value, hard=value) for limit, value in limits.items()],
        "user": user or None,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "device_requests": devices or None,
        "labels": labels.mine(repo.path.resolve()),
        "environment": {"PYTHONDONTWRITEBYTECODE": "1"},
    }
