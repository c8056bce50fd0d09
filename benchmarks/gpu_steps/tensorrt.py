"""``--accelerator tensorrt`` below ONNX Runtime: texts padded to a fixed length, as it wants them."""

from __future__ import annotations

from typing import Any

import common

from gpu_steps import encoders, kind_gpu
from gpu_steps.step import GPU, Setting

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
        found = kind_gpu.served_alone(setting, path, "fixed", clients=16, timeout=COMPILING)
    return {**accelerator, **found}
