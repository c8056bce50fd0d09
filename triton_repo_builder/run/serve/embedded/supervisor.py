"""Parent of the server: stops it, kills it, cleans up after it, also when ``trb`` itself is killed.

Runs as ``python -I -S supervisor.py GRACE`` with only the standard library, so that it starts at once. It
makes a folder, prints its path, reads an ``order`` from its standard input, starts the server and prints
its process id. Standard input is a pipe whose other end ``trb`` holds: end of file means that ``trb`` is
gone. A first SIGTERM or SIGINT asks the server to end and kills it after GRACE seconds; a second one kills
at once. The exit code is the server's.

The server's current folder is an empty one in the folder that was made: Triton's stub puts the current folder
first in ``sys.path``, and an empty entry of LD_LIBRARY_PATH names it, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PLAIN = re.compile(r"[A-Za-z0-9_./@%+=:,-]+")
ASK = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
CURRENT = "current"
"""Name of the server's current folder."""
REGION = re.compile(r" (/dev/shm/triton_\S+_backend_shm_region_\S+)")


LINES = Path(__file__).parents[1] / "log_lines.py"


def order(argv: list[str], env: dict[str, str], log: str, as_json: bool = False) -> bytes:
    """The command to start, as the line that the supervisor reads."""
    return json.dumps([argv, env, log, as_json]).encode() + b"\n"


def main(grace: float) -> int:
    """Make the folder and run the order; a ``trb`` that still runs removes the folder itself."""
    folder = tempfile.mkdtemp(prefix="trb-", dir=place())
    orphan = True
    try:
        tell(folder)
        if line := ordered():
            orphan, code = run(grace, Path(folder, CURRENT), *json.loads(line))
            return code
        return 0
    finally:
        if orphan:
            shutil.rmtree(folder, ignore_errors=True)


def place() -> str:
    """The folder for temporary files, or one whose path needs no quoting: Triton passes it to a shell."""
    places = [str(Path(tempfile.gettempdir()).absolute()), "/tmp", "/var/tmp"]
    return next((path for path in places if PLAIN.fullmatch(path)), places[0])


def tell(text: str) -> None:
    """Print a line for ``trb``, which may be gone."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, os.fsencode(text) + b"\n")


def ordered() -> bytes:
    """The line that ``trb`` writes; empty if ``trb`` ended first."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            return b""
        line += piece
    return line


class Converted:
    """The log as JSON (``log_lines.py``): the server writes into a pipe, and this into the file."""

    def __init__(self, log: str) -> None:
        spec = importlib.util.spec_from_file_location("log_lines", LINES)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.idle = int(module.IDLE * 1000)
        self.lines = module.JsonLines()
        self.source, self.sink = os.pipe()
        os.set_blocking(self.source, False)
        self.log = opened(log)

    def copy(self) -> bool:
        """Convert what is in the pipe; False at its end."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.source, 1 << 16):
                self.write(self.lines.feed(data))
            return False
        return True

    def write(self, text: bytes) -> None:
        """Append to the log; a full disk loses lines, and the server goes on."""
        with contextlib.suppress(OSError):
            os.write(self.log, text)

    def flush(self) -> None:
        """Write the message that is held."""
        self.write(self.lines.flush())


def opened(log: str) -> int:
    """The log: in our private folder, or one that the user names, which trb has made, its links resolved."""
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def run(
    grace: float, current: Path, argv: list[str], env: dict[str, str], log: str, as_json: bool = False
) -> tuple[bool, int]:
    """Run the server until it ends or is stopped; return whether ``trb`` ended first, and the exit code."""
    wake, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring)
    for number in (*ASK, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    converted = Converted(log) if as_json else None
    server = start(current, argv, env, log, converted)
    tell(str(server))
    poll = select.poll()
    if converted is not None:
        poll.register(converted.source, select.POLLIN)
    poll.register(wake, select.POLLIN)
    poll.register(0, select.POLLIN)
    deadline = None
    regions: set[str] = set()
    orphan = False
    while True:
        waits = [] if deadline is None else [max(0.0, deadline - time.monotonic()) * 1000]
        if converted is not None and converted.lines.open:
            waits.append(converted.idle)
        events = dict(poll.poll(min(waits, default=None)))
        if converted is not None:
            if converted.source not in events:
                converted.flush()
            elif not converted.copy():
                poll.unregister(converted.source)
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            break
        stopping = wake in events and not ASK.isdisjoint(os.read(wake, 64))
        if 0 in events and not os.read(0, 64):
            poll.unregister(0)
            orphan = stopping = True
        expired = deadline is not None and time.monotonic() >= deadline
        if stopping or expired:
            regions |= mapped(server)
            os.kill(server, signal.SIGTERM if deadline is None else signal.SIGKILL)
            deadline = time.monotonic() + grace
    clean(server, regions)
    if converted is not None:
        converted.copy()
        converted.flush()
    code = os.waitstatus_to_exitcode(status)
    return orphan, code if code >= 0 else 128 - code


def start(
    current: Path, argv: list[str], env: dict[str, str], log: str, converted: Converted | None = None
) -> int:
    """The server as leader of a process group of its own, killed by the kernel if this process dies."""
    prctl = ctypes.CDLL(None).prctl
    pid = os.fork()
    if pid:
        if converted is not None:
            os.close(converted.sink)
        return pid
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sink = opened(log) if converted is None else converted.sink
        for stream in (1, 2):
            os.dup2(sink, stream)
        current.mkdir()
        os.chdir(current)
        os.execve(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"cannot run {argv[0]}: {error}\n".encode())
    os._exit(127)


def clean(group: int, regions: set[str]) -> None:
    """Kill the remaining processes of the server's group, and remove the shared memory of all.

    Stubs that outlive their server would notice and end within seconds, but not one that hangs.
    """
    while remaining := members(group):
        for pid in remaining:
            regions |= mapped(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for region in regions:
        Path(region).unlink(missing_ok=True)


def members(group: int) -> list[int]:
    """Processes of a group, without zombies: field 3 is the state, field 5 the group (proc(5))."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[2]) == group and fields[0] not in "ZX":
                    pids.append(int(entry.name))
    return pids


def mapped(pid: int) -> set[str]:
    """Triton's shared memory regions in a process."""
    try:
        return set(REGION.findall(Path(f"/proc/{pid}/maps").read_text()))
    except OSError:
        return set()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
