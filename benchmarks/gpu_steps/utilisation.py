"""``trb bench``, as a user runs it: does its report name the GPU's utilisation?"""

from __future__ import annotations

import json
import sys
from typing import Any

import common

from gpu_steps import encoders, serving
from gpu_steps.step import GPU, Setting, StepFailed
from triton_repo_builder.base import process


def run(setting: Setting) -> dict[str, Any]:
    """Fails on a GPU whose utilisation is missing or 0 under load."""
    source = encoders.minilm(setting)
    clients = setting.clients[-1] if setting.small else 256
    argv = [sys.executable, "-m", "triton_repo_builder", "bench", "--json", "--endpoint", "ours"]
    argv += ["--concurrency", str(clients), "--window", f"{setting.window}s", "--warmup", "1s"]
    with common.scratch() as path:
        common.ours(source, path, "ours", device=setting.device)
        kind = serving.check_kinds(setting, path)
        with common.served(path) as server:
            argv += ["--url", server.urls.http, "--grpc-url", server.urls.grpc]
            argv += ["--metrics-url", str(server.urls.metrics)]
            report = json.loads(process.run([*argv, str(path)], timeout=300))
    level = report["levels"][0]
    found = {
        "kind": kind,
        "clients": clients,
        "gpu_utilization": level["gpu_utilization"],
        "requests_per_second": level["throughput"],
        "notes": report["notes"],
    }
    if setting.device == GPU and not any(level["gpu_utilization"].values()):
        raise StepFailed(f"no utilisation under load: {'; '.join(report['notes']) or 'no note'}", found)
    return found
