"""Facts of the machine and of the software, without which a number means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from triton_repo_builder.run.serve.processes.proc import PROC, text

PACKAGES = (
    "triton_repo_builder",
    "grpcio",
    "numpy",
    "onnxruntime",
    "onnxruntime-gpu",
    "tokenizers",
    "nvidia-pytriton",
)


def facts(proc: Path = PROC) -> dict[str, Any]:
    """CPU model, cores, memory and kernel of the machine that the clients run on."""
    memory = _find(text("meminfo", proc), r"MemTotal:\s+(\d+) kB")
    cpu = _find(text("cpuinfo", proc), r"model name\s*: (.*)")
    return {
        "cpu": cpu or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory) / 2**20, 1) if memory else None,
        "kernel": platform.release(),
        "system": platform.system(),
        "architecture": platform.machine(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that take part."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _find(content: str, pattern: str) -> str:
    match = re.search(pattern, content)
    return match[1].strip() if match else ""
