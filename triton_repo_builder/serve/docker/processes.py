"""The Python processes inside a container, as the daemon's ``ps`` shows them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from triton_repo_builder.serve.processes.stubs import INSTANCE, STUB, Stub

FORMAT = "-eo pid,args"
"""Docker wants the pid, and leaves the rest of a line to its last column."""


ENDED = "its process ended"


class ContainerStubs:
    """For a daemon on another machine. Each look costs it a ``ps``, so the last one stands for a while."""

    tick = 1.0

    def __init__(self, container: Any, repository: str) -> None:
        self._container = container
        self._repository = PurePosixPath(repository)
        self._seen: dict[int, Stub] = {}
        self._looked = -self.tick

    def scan(self) -> tuple[Stub, ...]:
        """Every stub there was a moment ago, dead ones included; none where the daemon cannot say."""
        import requests

        import docker

        if time.monotonic() - self._looked < self.tick:
            return tuple(self._seen.values())
        try:
            rows = self._container.top(ps_args=FORMAT)["Processes"]
        except (docker.errors.APIError, requests.RequestException):
            rows = []
        self._looked = time.monotonic()
        found = {}
        for pid, arguments in rows or ():
            stub = self._look(int(pid), str(arguments))
            if stub is not None:
                found[stub.pid] = stub
        # The daemon lists no zombies: one that was there and is not any more has ended.
        gone = {pid: stub for pid, stub in self._seen.items() if rows and pid not in found}
        found |= {pid: replace(stub, dead=True, end=ENDED) for pid, stub in gone.items()}
        self._seen = found
        return tuple(found.values())

    def kill(self, pid: int) -> None:
        """Nothing: the process is another's, and goes with the container."""

    def _look(self, pid: int, arguments: str) -> Stub | None:
        argv = arguments.split()
        if not argv or not argv[0].endswith(STUB) or len(argv) <= INSTANCE:
            return None
        path = PurePosixPath(argv[1])
        if not path.is_relative_to(self._repository):
            return None
        model, version, *_ = (*path.relative_to(self._repository).parts, "", "")
        return Stub(pid=pid, model=model, version=version, instance=argv[INSTANCE])
