"""Throughput and p99 by clients: ours, the usual template, ONNX Runtime alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import common
import template_repository
import usual_template
from template_repository import Template

from gpu_steps import alone, encoders, serving
from gpu_steps.step import GPU, Setting

OURS = "ours, trb build's defaults"
USUAL = "usual template"
LARGE = "usual template, ours' max_batch_size"
HALF = "ours, --precision fp16"
"""On a GPU only: a CPU has no fast arithmetic of 16 bits, and trb refuses it there."""
TOLERANCE = 5e-3
"""Of an embedding's number between variants: TF32 rounds each product."""


def run(setting: Setting) -> dict[str, Any]:
    """The answers are compared first; a run with different answers stops."""
    source = encoders.minilm(setting)
    with common.scratch() as path:
        common.ours(source, path, "ours", device=setting.device)
        kind = serving.check_kinds(setting, path)
        batch = max(1, serving.largest_batch(path, "ours_model"))
        # Named, so that no engine's idea of a default puts the baseline on the CPU.
        usual = Template(instances=1, kind=kind) if setting.device == GPU else Template()
        template_repository.write(source, path, "usual", usual)
        template_repository.write(source, path, "usual_large", replace(usual, batch=batch))
        endpoints = {OURS: "ours", USUAL: "usual", LARGE: "usual_large"}
        if setting.device == GPU:
            common.ours(source, path, "half", device=setting.device, precision="fp16")
            endpoints[HALF] = "half"
        with common.served(path) as server:
            apart = usual_template.differences(server, TOLERANCE, ("ours", "usual_large"))
            levels = serving.levels(setting, server, path, endpoints)
    return {
        "model": source.name,
        "kind": kind,
        "max_batch_size": batch,
        "largest_difference": max(apart.values()),
        "levels": levels,
        "alone": alone.run(source, setting),
    }
