"""The server's Python processes ("stubs"), as /proc shows them.

A stub is a child of the server: ``triton_python_backend_stub <repository>/<model>/<version>/<file> <region>
… <instance>``. One that dies stays a zombie for as long as the server does not notice.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from triton_repo_builder.repository import Repository
from triton_repo_builder.run.serve.processes import proc

STUB = "triton_python_backend_stub"
STARTED = 19
"""Field 22 of proc(5), of those after the name."""
INSTANCE = 8
"""Position of the instance name in the arguments (stub_launcher.cc); while auto-completing, the model's."""


@dataclass(frozen=True, kw_only=True)
class Stub:
    """One stub; ``model`` and ``instance`` are empty if it died before it was seen alive."""

    pid: int
    model: str = ""
    version: str = ""
    instance: str = ""
    dead: bool = False
    end: str = ""
    """Exit of the process, if dead."""
    started: int = 0
    """Order of starts: the later of two processes of an instance is the current one."""
    file: str = ""
    """The file that it runs."""

    @property
    def place(self) -> tuple[str, str, str]:
        """Model, version and instance, which one process at a time runs."""
        return self.model, self.version, self.instance


def model_of(argv: Sequence[str]) -> tuple[str, str] | None:
    """Model and version that a process with these arguments runs; None if it is not a stub."""
    if len(argv) <= INSTANCE or not argv[0].endswith(STUB):
        return None
    parts = Path(argv[1]).parts
    return (parts[-3], parts[-2]) if len(parts) > 2 else None


class ProcessLister(Protocol):
    """Lists the Python processes of one server, on this machine or in a container."""

    tick: float
    """Seconds between scans."""

    def scan(self) -> tuple[Stub, ...]:
        """Every stub, dead ones included."""

    def kill(self, pid: int) -> None:
        """Kill a stub that no model needs any more, if possible."""


class StubProcesses:
    """Reads /proc; remembers each process, because a zombie no longer has arguments."""

    tick = 0.25

    def __init__(self, server: int, repository: str, owners: Mapping[str, str] | None = None) -> None:
        """``owners``: the model of each name of a model or instance group.

        Needed if the server reads a bucket: it keeps each model in a folder with a random name.
        """
        self._server = server
        self._repository = Path(repository)
        self._owners = dict(owners or {})
        self._seen: dict[int, Stub] = {}

    def scan(self) -> tuple[Stub, ...]:
        """Every stub, dead ones included."""
        stubs = {pid: stub for pid in proc.children(self._server) if (stub := self._read(pid))}
        self._seen = stubs
        return tuple(stubs.values())

    def kill(self, pid: int) -> None:
        """Kill a stub that no model needs any more."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

    def _read(self, pid: int) -> Stub | None:
        fields = proc.stat(pid)
        if not fields:
            return None
        before = self._seen.get(pid)
        if before is None or not before.model:
            before = replace(self._describe(pid) or Stub(pid=pid), started=int(fields[STARTED]))
        if fields[0] in "ZX":
            return replace(before, dead=True, end=how_ended(int(fields[49])))
        # Between fork and exec the child still is a shell or the server itself.
        return before if before.model else None

    def _describe(self, pid: int) -> Stub | None:
        argv = proc.arguments(pid)
        if len(argv) <= INSTANCE or not argv[0].endswith(STUB):
            return None
        instance = argv[INSTANCE]
        if self._owners:
            prefixes = [name for name in self._owners if f"{instance}_".startswith(f"{name}_")]
            owner = self._owners[max(prefixes, key=len)] if prefixes else ""
            return Stub(
                pid=pid,
                model=owner,
                version=Path(argv[1]).parent.name,
                instance=instance,
                file=argv[1],
            )
        with suppress(ValueError):
            model, version, *_ = Path(argv[1]).relative_to(self._repository).parts
            return Stub(pid=pid, model=model, version=version, instance=instance, file=argv[1])
        return None


def model_of_instance(repo: Repository) -> dict[str, str]:
    """Model by the prefix of its instance names."""
    return {
        str(name): model.name
        for model in repo.models
        for name in (model.name, *(group.name for group in model.config.instance_groups))
        if name
    }


def how_ended(status: int) -> str:
    """Exit code or signal from the status that wait(2) would give (field 52 of proc(5))."""
    number = status & 0x7F
    if number == 0:
        return f"exit code {status >> 8}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"killed by {name}" + (" (out of memory?)" if number == signal.SIGKILL else "")
