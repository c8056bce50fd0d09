"""The server's Python processes in a container, from the daemon's ``ps``."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from triton_repo_builder.run.serve.docker import daemon
from triton_repo_builder.run.serve.processes.stubs import INSTANCE, STUB, Stub

FORMAT = "-eo pid,args"
"""Docker requires the pid; the last column takes the rest of the line."""
ENDED = "its process ended"


class ContainerStubProcesses:
    """Lister for a daemon on another machine. A scan costs a ``ps``; its result is kept for a ``tick``."""

    tick = 1.0

    def __init__(self, container: Any, repository: str) -> None:
        self._container = container
        self._repository = PurePosixPath(repository)
        self._seen: dict[int, Stub] = {}
        self._scanned = -self.tick

    def scan(self) -> tuple[Stub, ...]:
        """Every stub at the last ``ps``, dead ones included; none if the daemon does not answer."""
        if time.monotonic() - self._scanned < self.tick:
            return tuple(self._seen.values())
        try:
            rows = self._container.top(ps_args=FORMAT)["Processes"]
        except daemon.answer_errors():
            rows = []
        self._scanned = time.monotonic()
        stubs = {}
        for pid, arguments in rows or ():
            stub = self._describe(int(pid), str(arguments))
            if stub is not None:
                stubs[stub.pid] = stub
        # ``ps`` of a container lists no zombies: a process that has disappeared has ended.
        ended = {pid: stub for pid, stub in self._seen.items() if rows and pid not in stubs}
        stubs |= {pid: replace(stub, dead=True, end=ENDED) for pid, stub in ended.items()}
        self._seen = stubs
        return tuple(stubs.values())

    def kill(self, pid: int) -> None:
        """Do nothing: the process runs on another machine, and ends with the container."""

    def _describe(self, pid: int, arguments: str) -> Stub | None:
        argv = arguments.split()
        if not argv or not argv[0].endswith(STUB) or len(argv) <= INSTANCE:
            return None
        path = PurePosixPath(argv[1])
        if not path.is_relative_to(self._repository):
            return None
        model, version, *_ = (*path.relative_to(self._repository).parts, "", "")
        seen = self._seen.get(pid)
        started = seen.started if seen else time.monotonic_ns()
        return Stub(pid=pid, model=model, version=version, instance=argv[INSTANCE], started=started)
