"""Remove the Docker objects of a ``trb`` after it ended, also if it was killed.

Runs as ``python supervisor.py CONTAINER HELPER VOLUME`` from before any of them exists, and prints the path
of the folder that it made for ``trb``; its standard input is a pipe that ``trb`` holds. One byte means that
``trb`` has cleaned up in Docker itself; end of file without it, that it could not. A request that was on
its way when ``trb`` died may still make something: names are tried for a while.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress

GRACE = 3.0
TICK = 0.2


def main(container: str, helper: str, volume: str) -> None:
    """Wait for the end, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The first entry is this folder, whose modules are called errors, images, settings.
    sys.path.pop(0)
    # Imported before anything is made, so that what is missing shows at once.
    from triton_repo_builder.run.serve.docker import daemon

    daemon.errors()
    folder = tempfile.mkdtemp(prefix="trb-")
    try:
        with suppress(BrokenPipeError):
            os.write(1, os.fsencode(folder) + b"\n")
        if not os.read(0, 1):
            clear((container, helper), volume)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear(containers: tuple[str, ...], volume: str) -> None:
    """Remove all of them, repeatedly for a while."""
    from triton_repo_builder.run.serve.docker import daemon

    client = daemon.connect()
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline:
        for name in containers:
            with suppress(*daemon.errors()):
                client.api.remove_container(name, force=True, v=True)
        with suppress(*daemon.errors()):
            client.api.remove_volume(volume, force=True)
        time.sleep(TICK)


if __name__ == "__main__":
    main(*sys.argv[1:])
