"""An encoder of BERT-large's size: 335 million weights, one file of 1.3 GB."""

from __future__ import annotations

from typing import Any

import common

from gpu_steps import encoders, kind_gpu, serving
from gpu_steps.step import Setting
from triton_repo_builder import repository, smoke


def run(setting: Setting) -> dict[str, Any]:
    """Built with golden cases, proven by ``trb smoke``, loaded by 1, 16 and 64 clients."""
    source = encoders.encoder("large", setting)
    clients = tuple(count for count in setting.clients if count <= 64)
    with common.scratch() as path:
        common.ours(source, path, "large", device=setting.device)
        kind = serving.check_kinds(setting, path)
        with common.served(path) as server:
            options = smoke.Options(clients=4, requests=2, timeout=120.0)
            proven = kind_gpu.proven(smoke.run(server.urls, repository.read(path), options))
            memory = kind_gpu.on_gpu(setting, server.pid)
            levels = serving.levels(setting, server, path, {"large": "large"}, concurrency=clients)
    weights = (source / "model.onnx").stat().st_size
    return {"bytes": weights, "kind": kind, "smoke": proven, "processes": memory, "levels": levels}
