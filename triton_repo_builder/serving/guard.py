"""Parent of the server: stops it, kills it, cleans up after it, also when ``trb`` itself is killed.

Runs as ``python -I -S guard.py GRACE FOLDER SERVER ARGS…`` with nothing but the standard library, so that it
starts at once. Its standard input is a pipe whose other end ``trb`` holds: end of file means that ``trb`` is
gone. A first SIGTERM or SIGINT asks the server to end and kills it after GRACE seconds; a second one kills
at once. The exit code is the server's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import shutil
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
ASK = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
REGION = re.compile(r" (/dev/shm/triton_\S+_backend_shm_region_\S+)")
PID_FILE = "server.pid"


def main(grace: float, folder: Path, argv: list[str]) -> int:
    """Run the server until it ends or is to be stopped; return its exit code."""
    wake, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring)
    for number in (*ASK, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    server = start(argv)
    (folder / PID_FILE).write_text(str(server))
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(0, select.POLLIN)
    deadline = None
    regions: set[str] = set()
    orphan = False
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        events = dict(poll.poll(left))
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            break
        asked = wake in events and not ASK.isdisjoint(os.read(wake, 64))
        if 0 in events and not os.read(0, 64):
            poll.unregister(0)
            orphan = asked = True
        expired = deadline is not None and time.monotonic() >= deadline
        if asked or expired:
            regions |= mapped(server)
            os.kill(server, signal.SIGTERM if deadline is None else signal.SIGKILL)
            deadline = time.monotonic() + grace
    clean(server, regions)
    if orphan:
        shutil.rmtree(folder, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def start(argv: list[str]) -> int:
    """The server as leader of a process group of its own, killed by the kernel if this process dies."""
    prctl = ctypes.CDLL(None).prctl
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(argv[0], argv)
    except OSError as error:
        os.write(2, f"cannot run {argv[0]}: {error}\n".encode())
    os._exit(127)


def clean(group: int, regions: set[str]) -> None:
    """Kill what the server left of its process group, and remove the shared memory of all of them.

    Stubs that outlive their server would notice and end within seconds, but not one that hangs.
    """
    while left := members(group):
        for pid in left:
            regions |= mapped(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for region in regions:
        Path(region).unlink(missing_ok=True)


def members(group: int) -> list[int]:
    """Processes of a group, without zombies: field 3 is the state, field 5 the group (proc(5))."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[2]) == group and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def mapped(pid: int) -> set[str]:
    """Triton's shared memory regions in a process."""
    try:
        return set(REGION.findall(Path(f"/proc/{pid}/maps").read_text()))
    except OSError:
        return set()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
