"""The server's Python processes ("stubs"), as /proc shows them.

A stub is a child of the server: ``triton_python_backend_stub <repository>/<model>/<version>/<file> <region>
… <instance>``. One that dies stays a zombie for as long as the server does not notice.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

STUB = "triton_python_backend_stub"
INSTANCE = 8
"""Position of the instance name in the arguments (stub_launcher.cc); while auto-completing, the model's."""


@dataclass(frozen=True, kw_only=True)
class Stub:
    """One stub; ``model`` and ``instance`` are empty where it died before it could be seen alive."""

    pid: int
    model: str = ""
    version: str = ""
    instance: str = ""
    dead: bool = False
    end: str = ""
    """How a dead one ended."""


class Processes(Protocol):
    """The Python processes of one server, wherever it runs."""

    tick: float
    """Seconds between two looks that are worth their cost."""

    def scan(self) -> tuple[Stub, ...]:
        """Every stub there is now, dead ones included."""

    def kill(self, pid: int) -> None:
        """End one that no model needs any more, where that can be done."""


class Stubs:
    """Remembers what each process was, because a zombie no longer has arguments."""

    tick = 0.25

    def __init__(self, server: int, repository: str, owners: Mapping[str, str] | None = None) -> None:
        """``owners``: names of instance groups and of models, by which model they belong to.

        Needed where a server reads a bucket: it keeps each model in a folder with a name of chance.
        """
        self._server = server
        self._repository = Path(repository)
        self._owners = dict(owners or {})
        self._seen: dict[int, Stub] = {}

    def scan(self) -> tuple[Stub, ...]:
        """Every stub there is now, dead ones included."""
        found = {}
        for pid in _children(self._server):
            stub = self._look(pid)
            if stub is not None:
                found[pid] = stub
        self._seen = found
        return tuple(found.values())

    def kill(self, pid: int) -> None:
        """End one that no model needs any more."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

    def _look(self, pid: int) -> Stub | None:
        before = self._seen.get(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            fields = stat.rsplit(")", 1)[1].split()
            dead = fields[0] in "ZX"
            if before is None or not before.model:
                before = self._describe(pid) or Stub(pid=pid)
        except OSError:
            return None
        if dead:
            return replace(before, dead=True, end=_ending(int(fields[49])))
        # Between fork and exec the child still is a shell or the server itself.
        return before if before.model else None

    def _describe(self, pid: int) -> Stub | None:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        if not argv[0].endswith(STUB) or len(argv) <= INSTANCE:
            return None
        instance = argv[INSTANCE]
        if self._owners:
            fitting = [name for name in self._owners if f"{instance}_".startswith(f"{name}_")]
            owner = self._owners[max(fitting, key=len)] if fitting else ""
            return Stub(pid=pid, model=owner, version=Path(argv[1]).parent.name, instance=instance)
        with contextlib.suppress(ValueError):
            model, version, *_ = Path(argv[1]).relative_to(self._repository).parts
            return Stub(pid=pid, model=model, version=version, instance=instance)
        return None


def _children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _ending(status: int) -> str:
    """In words, from the status that wait(2) would give (field 52 of proc(5))."""
    number = status & 0x7F
    if number == 0:
        return f"exit code {status >> 8}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"killed by {name}" + (" (out of memory?)" if number == signal.SIGKILL else "")
