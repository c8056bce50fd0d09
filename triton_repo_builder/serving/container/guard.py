"""Removes what a ``trb`` made in Docker when that ``trb`` is gone, however it went.

Runs as ``python guard.py FOLDER CONTAINER HELPER VOLUME`` from before any of them exists; its standard input
is a pipe that ``trb`` holds. One byte says that ``trb`` has cleaned up itself; end of file without it, that
it could not. A request that was on its way when ``trb`` died may still make something: names are tried for a
while.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

ARMED = "armed"
"""A file in FOLDER: the guard is ready."""
GRACE = 3.0
TICK = 0.2


def main(folder: str, container: str, helper: str, volume: str) -> None:
    """Wait for the end, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The first entry is this folder, or where the user works: neither is a place to import from.
    sys.path.pop(0)
    from triton_repo_builder.serving.container import daemon

    Path(folder, ARMED).touch()
    if os.read(0, 1):
        return
    client = daemon.connect()
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline:
        for name in (container, helper):
            with suppress(*daemon.errors()):
                client.api.remove_container(name, force=True, v=True)
        with suppress(*daemon.errors()):
            client.api.remove_volume(volume, force=True)
        time.sleep(TICK)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
