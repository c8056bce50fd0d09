"""Tokenizer instances at the speed of the device."""

from __future__ import annotations

from typing import Any

import common
import tokenizer_scaling

from gpu_steps import encoders, serving
from gpu_steps.step import Setting


def run(setting: Setting) -> dict[str, Any]:
    """1, 2, 4 and 8 instances, each in front of a model of its own; 1 and 4 in a small run."""
    source = encoders.minilm(setting)
    counts = (1, 4) if setting.small else tokenizer_scaling.COUNTS
    clients = 4 if setting.small else 256
    with common.scratch() as path:
        for count in counts:
            common.ours(
                source,
                path,
                f"ours_{count}",
                device=setting.device,
                tokenizer_instances=count,
                share_tokenizer=False,
            )
        kind = serving.check_kinds(setting, path)
        with common.served(path) as server:
            endpoints = {str(count): f"ours_{count}" for count in counts}
            levels = serving.levels(setting, server, path, endpoints, concurrency=(clients,))
    return {"model": source.name, "kind": kind, "clients": clients, "levels": levels}
