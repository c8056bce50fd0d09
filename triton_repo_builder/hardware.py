"""What this machine has: cores that this process may use, and NVIDIA GPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from triton_repo_builder import process


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One NVIDIA GPU; ``bytes`` is its whole memory."""

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where the repository will run, as far as this machine tells."""

    cores: int
    gpus: tuple[Gpu, ...]


def here() -> Hardware:
    """This machine. No GPU where nvidia-smi is missing or finds none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Hardware(cores=cores, gpus=_gpus())


def _gpus() -> tuple[Gpu, ...]:
    argv = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = process.run(argv, timeout=10)
    except (OSError, process.ProcessFailed):
        return ()
    found = []
    for line in listed.splitlines():
        name, _, mebibytes = line.rpartition(",")
        if mebibytes.strip().isdigit():
            found.append(Gpu(name=name.strip(), bytes=int(mebibytes) << 20))
    return tuple(found)
