"""CPU time of a server and everything below it, and of the whole machine, from /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

PROC = Path("/proc")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
FRONTS = ("docker-proxy", "rootlessport", "pasta", "slirp4netns", "gvproxy")
"""Programs that listen in place of a server in a container; their CPU says nothing of the server's."""


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Ticks since the machine started, over all CPUs."""

    busy: int
    total: int


def tree_seconds(pid: int, proc: Path = PROC) -> float | None:
    """Seconds of CPU of a process and all its descendants, ended ones included; None when it is gone."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, IndexError, ValueError):
            # The name, field 2, may hold blanks and brackets; fields as in proc_pid_stat(5).
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(int(value) for value in fields[11:15])
    if pid not in ticks:
        return None
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return sum(ticks[member] for member in members) / os.sysconf("SC_CLK_TCK")


def machine(proc: Path = PROC) -> Busy | None:
    """How much of this machine's CPU was used so far."""
    try:
        values = [int(value) for value in (proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
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


def listener(url: str, proc: Path = PROC) -> int | None:
    """The process that listens on a loopback url's port, as far as this user may see it."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    if not local(url) or parts.port is None:
        return None
    sockets = _sockets(parts.port, proc)
    for entry in proc.iterdir() if sockets else ():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if any(str(handle.readlink()) in sockets for handle in (entry / "fd").iterdir()):
                name = (entry / "comm").read_text().strip()
                return None if name in FRONTS else int(entry.name)
    return None


def _sockets(port: int, proc: Path) -> set[str]:
    """Listening sockets in the form in which /proc/PID/fd names them; columns as in proc_net_tcp(5)."""
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == "0A" and int(columns[1].rsplit(":", 1)[1], 16) == port:
                    found.add(f"socket:[{columns[9]}]")
    return found


def count() -> int:
    """CPUs of this machine."""
    return os.cpu_count() or 1
