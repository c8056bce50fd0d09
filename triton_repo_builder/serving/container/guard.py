"""Removes a container when the ``trb`` that started it is gone, however it went.

Runs as ``python -m …guard CONTAINER [VOLUME]``; its standard input is a pipe that ``trb`` holds, and end of
file means that ``trb`` has ended. After an orderly stop there is nothing left to remove.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def main(container: str, volume: str = "") -> None:
    """Wait for the end, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 64):
        pass
    import docker

    client = docker.from_env()
    with suppress(docker.errors.APIError):
        client.api.remove_container(container, force=True, v=True)
    if volume:
        with suppress(docker.errors.APIError):
            client.api.remove_volume(volume, force=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
