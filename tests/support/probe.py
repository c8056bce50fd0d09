"""A readiness probe, as Kubernetes asks it, only more often."""

from __future__ import annotations

import http.client
import threading
import time
from urllib.parse import urlsplit

TICK = 0.02
"""Seconds between two probes; Kubernetes' default is 10."""
TIMEOUT = 1.0
"""Kubernetes' default: a probe without an answer in this time has failed."""


class Probe(threading.Thread):
    """``httpGet`` on a path, each time over a new connection, until the end of a ``with``."""

    def __init__(self, url: str, path: str) -> None:
        super().__init__(daemon=True)
        self._address, self._path = urlsplit(url).netloc, path
        self._end = threading.Event()
        self._since = 0.0
        self.asked = 0
        self.failed = 0
        self.refused = 0
        """Answers that say that it is not ready; on a starved machine others come too late."""
        self.slowest = 0.0
        """Seconds until the slowest answer."""
        self.windows: list[float] = []
        """How long it was not ready, each time, in seconds."""

    def run(self) -> None:
        """Ask until the end."""
        while not self._end.wait(TICK):
            begun = time.monotonic()
            ready = self._ask()
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.asked += 1
            self.failed += not ready
            if ready and self._since:
                self.windows.append(time.monotonic() - self._since)
                self._since = 0.0
            elif not ready and not self._since:
                self._since = begun

    def _ask(self) -> bool:
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT)
        try:
            connection.request("GET", self._path)
            ready = connection.getresponse().status == 200
            self.refused += not ready
            return ready
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def __enter__(self) -> Probe:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self.join(30)
        if self._since:
            self.windows.append(time.monotonic() - self._since)
