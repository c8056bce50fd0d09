"""What this machine has: cores that this process may use, and NVIDIA GPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from triton_repo_builder import process


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One NVIDIA GPU; ``bytes`` is its whole memory, 0 where nvidia-smi does not tell."""

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where the repository will run, as far as this machine tells."""

    cores: int
    gpus: tuple[Gpu, ...]


def here() -> Hardware:
    """This machine. No GPU where nvidia-smi is missing or finds none, or none is visible to CUDA."""
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
        name, comma, mebibytes = line.rpartition(",")
        if comma:
            told = mebibytes.strip()
            found.append(Gpu(name=name.strip(), bytes=int(told) << 20 if told.isdigit() else 0))
    return _visible(found)


def _visible(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves, where it names them by number: the first wrong one ends it."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None or any(
        part.strip() and not part.strip().lstrip("-").isdigit() for part in given.split(",")
    ):
        return tuple(gpus)
    left = []
    for part in given.split(","):
        if not part.strip().isdigit() or int(part) >= len(gpus):
            break
        left.append(gpus[int(part)])
    return tuple(left)
