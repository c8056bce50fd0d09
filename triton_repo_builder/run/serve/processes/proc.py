"""The one reader of /proc: the machine, processes, their children and arguments, and who listens on a port.

Formats: proc_pid_stat(5), proc_net_tcp(5). Inaccessible processes and files are treated as missing.
``supervisor.py`` of the embedded engine reads /proc by itself: it runs without this package.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"
"""TCP_LISTEN in the state column of /proc/net/tcp."""


def pids(proc: Path = PROC) -> Iterator[int]:
    """Every process of this machine."""
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())


def text(name: str, proc: Path = PROC) -> str:
    """A file of the whole machine, e.g. ``meminfo``; empty if it cannot be read."""
    with suppress(OSError):
        return (proc / name).read_text()
    return ""


def stat(pid: int, proc: Path = PROC) -> list[str]:
    """Fields of /proc/PID/stat from the third on (the state); empty if there is no such process.

    The name, field 2, may contain blanks and brackets: fields are counted from its end.
    """
    try:
        return (proc / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def start_time(pid: int) -> str:
    """Field 22, in ticks since boot: distinguishes a process from a later one with the same id."""
    return "".join(stat(pid)[19:20])


def alive(pid: int) -> bool:
    """Whether a process with this id exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return stat(pid)[:1] not in ([], ["Z"])


def exists(pid: int) -> bool:
    """Whether a process or zombie with this id exists."""
    return (PROC / str(pid)).exists()


def children(pid: int) -> list[int]:
    """Processes that were started by any thread of this one."""
    child_pids = []
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                child_pids += [int(child) for child in (task / "children").read_text().split()]
    return child_pids


def arguments(pid: int) -> list[str]:
    """The command line; empty for a zombie."""
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    return []


def option(argv: Sequence[str], name: str) -> str:
    """The value of ``--name=value`` or ``--name value``; empty without that option."""
    for position, argument in enumerate(argv):
        if argument == name and position + 1 < len(argv):
            return argv[position + 1]
        if argument.startswith(f"{name}="):
            return argument.split("=", 1)[1]
    return ""


def name(pid: int, proc: Path = PROC) -> str:
    """The program's name, at most 15 characters."""
    with suppress(OSError):
        return (proc / str(pid) / "comm").read_text().strip()
    return ""


def path(pid: int, named: str) -> Path:
    """Path that a process names, resolved by its current folder and mounts, for use by this process."""
    current, other = PROC / "self", PROC / str(pid)
    with suppress(OSError):
        if (current / "ns" / "mnt").readlink() != (other / "ns" / "mnt").readlink():
            return Path(f"{other / 'root'}{(other / 'cwd').readlink() / named}")
        return (other / "cwd").readlink() / named
    return Path(named)


def started(pid: int) -> float:
    """When a process began, in seconds since 1970; 0 if it is gone."""
    ticks = start_time(pid)
    if not ticks:
        return 0.0
    uptime = float(text("uptime").split()[0])
    return time.time() - uptime + int(ticks) / os.sysconf("SC_CLK_TCK")


def error_file(pid: int) -> Path | None:
    """The file of standard error; None for a terminal or pipe."""
    with suppress(OSError):
        target = (PROC / str(pid) / "fd" / "2").readlink()
        return target if target.is_file() else None
    return None


def listener(port: int, proc: Path = PROC) -> int:
    """The process that listens on a TCP port of this machine; 0 if there is none."""
    sockets = _listening_sockets(port, proc)
    for pid in pids(proc) if sockets else ():
        with suppress(OSError):
            for handle in (proc / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    if str(handle.readlink()) in sockets:
                        return pid
    return 0


def _listening_sockets(port: int, proc: Path) -> set[str]:
    """Sockets as the links in /proc/PID/fd name them."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == LISTENING and int(columns[1].rsplit(":", 1)[1], 16) == port:
                    sockets.add(f"socket:[{columns[9]}]")
    return sockets
