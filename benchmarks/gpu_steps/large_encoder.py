"""An encoder of BERT-large's size: 335 million weights, one file of 1.3 GB."""

from __future__ import annotations

from typing import Any

import common

from gpu_steps import encoders, kind_gpu
from gpu_steps.step import Setting


def run(setting: Setting) -> dict[str, Any]:
    """Built with golden cases, proven by ``trb smoke``, loaded by 1, 16 and 64 clients."""
    source = encoders.encoder("large", setting)
    with common.scratch() as path:
        common.ours(source, path, "large", device=setting.device)
        found = kind_gpu.served_alone(setting, path, "large", clients=64)
    return {"bytes": (source / "model.onnx").stat().st_size, **found}
