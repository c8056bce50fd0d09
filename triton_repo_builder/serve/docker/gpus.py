"""Which GPUs a container gets."""

from __future__ import annotations

import re
from typing import Any

from triton_repo_builder.errors import Code, TrbError


def request(client: Any, wanted: str) -> list[Any]:
    """Device requests for ``all``, ``none``, ``auto`` or numbers (``0,1``). Raises ``TrbError``."""
    from docker.types import DeviceRequest

    if wanted == "none":
        return []
    if wanted not in ("auto", "all") and not re.fullmatch(r"\d+(,\d+)*", wanted):
        raise TrbError(
            Code.USAGE,
            f"'{wanted}' names no GPUs",
            where="--gpus",
            remedy="auto, all, none, or numbers such as 0,1",
        )
    if not offered(client):
        if wanted == "auto":
            return []
        raise TrbError(
            Code.GPU_UNAVAILABLE,
            "Docker cannot give GPUs to containers on this machine",
            where="--gpus",
            remedy="install the NVIDIA driver and the nvidia-container-toolkit "
            "(nvidia-ctk runtime configure --runtime=docker, then restart Docker), or use --gpus none",
        )
    if wanted in ("auto", "all"):
        return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return [DeviceRequest(device_ids=wanted.split(","), capabilities=[["gpu"]])]


def offered(client: Any) -> bool:
    """Whether the daemon has NVIDIA's runtime, or devices by the Container Device Interface."""
    info = client.info()
    devices = info.get("DiscoveredDevices") or []
    return "nvidia" in (info.get("Runtimes") or {}) or any(
        str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in devices
    )
