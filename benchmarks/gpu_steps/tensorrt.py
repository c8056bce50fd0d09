"""``--accelerator tensorrt`` below ONNX Runtime: texts padded to a fixed length, as it wants them."""

from __future__ import annotations

from typing import Any

import common

from gpu_steps import encoders, kind_gpu, serving
from gpu_steps.step import GPU, Setting
from triton_repo_builder import repository, smoke

LENGTH = 128
COMPILING = 300.0
"""Seconds that a first request may wait: an engine is compiled for its shape."""


def run(setting: Setting) -> dict[str, Any]:
    """Fails where the server lacks TensorRT and so refuses the model. On a CPU the same texts without it."""
    accelerator = {"accelerator": "tensorrt"} if setting.device == GPU else {}
    with common.scratch() as path:
        common.ours(
            encoders.minilm(setting),
            path,
            "fixed",
            device=setting.device,
            padding=f"fixed:{LENGTH}",
            max_batch_size=16,
            **accelerator,
        )
        kind = serving.check_kinds(setting, path)
        with common.served(path) as server:
            options = smoke.Options(clients=4, requests=2, timeout=COMPILING)
            proven = kind_gpu.proven(smoke.run(server.urls, repository.read(path), options))
            memory = kind_gpu.on_gpu(setting, server.pid)
            clients = tuple(count for count in setting.clients if count <= 16)
            levels = serving.levels(setting, server, path, {"fixed": "fixed"}, concurrency=clients)
    return {"kind": kind, **accelerator, "smoke": proven, "processes": memory, "levels": levels}
