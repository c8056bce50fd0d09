"""The machine: cores available to this process, and NVIDIA GPUs."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from triton_repo_builder.base import process

CGROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_MEMORY = CGROUPS / "memory.max"
MEMINFO = Path("/proc/meminfo")
"""proc_meminfo(5)."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One NVIDIA GPU; ``bytes`` is its whole memory, 0 if nvidia-smi does not report it."""

    name: str
    bytes: int
    uuid: str = ""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The machine that the repository is built for: this one."""

    cores: int
    """CPU cores available to this process."""
    gpus: tuple[Gpu, ...]
    """GPUs visible to CUDA."""
    machine_cores: int = 0
    """All of the machine's, if they are more; else 0."""
    quota: float | None = None
    """The control group's CPU quota in cores, if it limits ``cores``."""
    hidden: tuple[Gpu, ...] = ()
    """GPUs hidden by CUDA_VISIBLE_DEVICES."""
    memory: int = 0
    """Bytes that this machine has, or the control group of this process; 0 if no file says it."""

    @property
    def limit(self) -> str:
        """``1 of 2`` if this process may not use all cores, and why; else empty."""
        if not self.machine_cores:
            return ""
        why = f"; the CPU quota of its control group is {self.quota:.3g}" if self.quota else ""
        return f"{self.cores} of {self.machine_cores}{why}"

    @property
    def cores_described(self) -> str:
        """The cores, as part of a sentence."""
        if self.limit:
            return f"the cores that this process may use ({self.limit})"
        return f"this machine's {self.cores} cores" if self.cores > 1 else "this machine's only core"


def here() -> Hardware:
    """This machine. No GPU if nvidia-smi is missing or finds none, or none is visible to CUDA."""
    total = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    quota = cpu_quota()
    cores = min(allowed, max(1, math.ceil(quota))) if quota else allowed
    gpus = _gpus()
    visible = _visible(gpus)
    return Hardware(
        cores=cores,
        gpus=visible,
        machine_cores=total if cores < total else 0,
        quota=quota if cores < allowed else None,
        hidden=() if visible else gpus,
        memory=memory(),
    )


def memory() -> int:
    """Bytes of the machine, or of this container if fewer; 0 where no file says it."""
    limits: list[int] = []
    if MEMINFO.is_file() and (total := re.search(r"MemTotal:\s+(\d+) kB", MEMINFO.read_text())):
        limits.append(int(total[1]) << 10)
    with contextlib.suppress(OSError, ValueError):
        limits.append(int(CGROUP_MEMORY.read_text()))  # "max": none
    return min(limits, default=0)


def _gpus() -> tuple[Gpu, ...]:
    argv = ["nvidia-smi", "--query-gpu=name,memory.total,uuid", "--format=csv,noheader,nounits"]
    try:
        listed = process.run(argv, timeout=10)
    except (OSError, process.ProcessFailed):
        return ()
    gpus = []
    for line in listed.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 2)]
        if len(parts) == 3:
            name, memory, uuid = parts
            gpus.append(Gpu(name=name, bytes=int(memory) << 20 if memory.isdigit() else 0, uuid=uuid))
    return tuple(gpus)


def _visible(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs that CUDA_VISIBLE_DEVICES leaves, by number or start of a UUID, up to the first wrong one.

    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars. nvidia-smi does not list a part of a GPU
    (MIG), so it is taken literally.
    """
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is None or not gpus:
        return gpus
    visible: list[Gpu] = []
    for part in map(str.strip, variable.split(",")):
        if part.startswith("MIG-"):
            visible.append(Gpu(name="a MIG device", bytes=0, uuid=part))
            continue
        if part.isdigit():
            matching = gpus[int(part) : int(part) + 1]
        else:
            matching = tuple(gpu for gpu in gpus if part.startswith("GPU-") and gpu.uuid.startswith(part))
        if len(matching) != 1:
            break
        visible.append(matching[0])
    return tuple(visible)


def cpu_quota(member: Path = CGROUP, root: Path = CGROUPS) -> float | None:
    """CPU time in cores that the control groups of this process leave it, as ``docker run --cpus`` sets;
    None if nothing limits it.

    The smallest limit of its group and the groups above, as far as they are visible here. Version 2 has one
    tree, and version 1 one by controller: https://docs.kernel.org/scheduler/sched-bwc.html.
    """
    try:
        lines = member.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return None
    limits: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if not controllers:
            limits += _each(root, path, _second)
        elif "cpu" in controllers.split(","):
            for tree in {controllers, "cpu"}:
                limits += _each(root / tree, path, _first)
    return min(limits, default=None)


def _each(tree: Path, path: str, read: Callable[[Path], tuple[int, int]]) -> Iterator[float]:
    group = PurePosixPath(path.lstrip("/"))
    for place in (group, *group.parents):
        if ".." in place.parts:  # above what this container sees
            continue
        with contextlib.suppress(OSError, ValueError):
            limit, period = read(tree / place)
            if limit > 0 and period > 0:
                yield limit / period


def _second(group: Path) -> tuple[int, int]:
    limit, period = (group / "cpu.max").read_text().split()
    return (-1 if limit == "max" else int(limit)), int(period)


def _first(group: Path) -> tuple[int, int]:
    """-1: no limit."""
    return int((group / "cpu.cfs_quota_us").read_text()), int((group / "cpu.cfs_period_us").read_text())
