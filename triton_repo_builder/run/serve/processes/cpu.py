"""CPU time and memory of a server with all processes below it, and CPU time of the machine, from /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from triton_repo_builder.run.client.values import LOOPBACK
from triton_repo_builder.run.serve.processes.proc import PROC, listener, name, pids, text
from triton_repo_builder.run.serve.processes.proc import stat as process_stat

FRONTS = ("docker-proxy", "rootlessport", "pasta", "slirp4netns", "gvproxy")
"""Programs that listen for a server in a container; their CPU time is not the server's."""


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Ticks since the machine started, over all CPUs."""

    busy: int
    total: int


def tree(pid: int, proc: Path = PROC) -> dict[int, list[str]]:
    """A process and all its descendants with their /proc/PID/stat; empty if it is gone."""
    stats = {number: stat for number in pids(proc) if len(stat := process_stat(number, proc)) >= 15}
    members = {pid} & stats.keys()
    # Field 4 (parent) of proc_pid_stat(5).
    while children := {child for child, stat in stats.items() if int(stat[1]) in members} - members:
        members |= children
    return {member: stats[member] for member in members}


def tree_seconds(pid: int, proc: Path = PROC) -> float | None:
    """Seconds of CPU of a process and all its descendants, ended ones included; None if it is gone."""
    stats = tree(pid, proc)
    return sum(map(seconds, stats.values())) if stats else None


def seconds(stat: Sequence[str]) -> float:
    """Seconds of CPU of a process and its ended children, of its /proc/PID/stat."""
    # Fields 14 to 17: user, system, and the same of ended children.
    return sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")


def tree_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Proportional set size of a process and all its descendants; None if it cannot be read."""
    sizes = [size for member in tree(pid, proc) if (size := _proportional(member, proc)) is not None]
    return sum(sizes) if sizes else None


def _proportional(pid: int, proc: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return None


def machine(proc: Path = PROC) -> Busy | None:
    """CPU time that this machine has used so far."""
    values = [int(value) for value in text("stat", proc).partition("\n")[0].split()[1:9]]
    if not values:
        return None
    idle = values[3] + values[4]
    return Busy(busy=sum(values) - idle, total=sum(values))


def share(before: Busy | None, after: Busy | None) -> float | None:
    """Part of the machine's CPU that was used between two readings."""
    if before is None or after is None or after.total <= before.total:
        return None
    return (after.busy - before.busy) / (after.total - before.total)


def local(url: str) -> bool:
    """Whether a url names this machine by its loopback address."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    return parts.hostname in LOOPBACK or (parts.hostname or "").startswith("127.")


def server_process(url: str, proc: Path = PROC) -> int | None:
    """The process that listens on a loopback url's port, as far as this user may see it."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    pid = listener(parts.port, proc) if local(url) and parts.port is not None else 0
    return pid if pid and name(pid, proc) not in FRONTS else None


def count() -> int:
    """CPUs of this machine."""
    return os.cpu_count() or 1
