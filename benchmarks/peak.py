"""Time and peak memory of one command, as JSON: ``python -S benchmarks/peak.py COMMAND ARG…``.

Started from a small process, for a child's peak begins at that of the process it was forked from. What the
command prints goes to standard error.

``resident`` counts pages of files that the command maps, too: the kernel drops those whenever others need
the memory. ``anonymous`` is what the command cannot do without (proc_pid_status(5), RssAnon). Both are looked
at every 2 ms, and are those of the command and of the processes that it started, the model's among them.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path


def sizes(pid: int) -> tuple[int, int]:
    """Kilobytes of a process and those below it now: resident, and anonymous."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    stated = dict(line.split(":", 1) for line in lines)
    resident, anonymous = (int(stated.get(name, "0").split()[0]) for name in ("VmRSS", "RssAnon"))
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            more = sizes(int(child))
            resident, anonymous = resident + more[0], anonymous + more[1]
    return resident, anonymous


def command(argv: list[str]) -> list[str]:
    """What to run. argparse is loaded only to explain: its memory would count as the command's."""
    if argv and not argv[0].startswith("-"):
        return argv
    import argparse

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", metavar="COMMAND", help="path of the program")
    parser.add_argument("arguments", metavar="ARG", nargs=argparse.REMAINDER, help="what it is given")
    given = parser.parse_args(argv)
    return [given.command, *given.arguments]


def main(argv: list[str]) -> None:
    """Run it to its end."""
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
    resident = anonymous = 0
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        with suppress(OSError):
            now = sizes(pid)
            resident, anonymous = max(resident, now[0]), max(anonymous, now[1])
        time.sleep(0.002)
    print(
        json.dumps(
            {
                "status": os.waitstatus_to_exitcode(status),
                "seconds": time.perf_counter() - start,
                "resident": max(resident, usage.ru_maxrss) / 1024,
                "anonymous": anonymous / 1024,
            }
        )
    )


if __name__ == "__main__":
    main(command(sys.argv[1:]))
