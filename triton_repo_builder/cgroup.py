"""How much of the CPU the control groups of this process leave it: what ``docker run --cpus`` sets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

MEMBER = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


def quota(member: Path = MEMBER, root: Path = ROOT) -> float | None:
    """Cores' worth of time that this process may use; None where nothing limits it.

    The smallest of its group and of those above, as far as they are shown here. Version 2 has one tree, and
    version 1 one by controller: https://docs.kernel.org/scheduler/sched-bwc.html.
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
