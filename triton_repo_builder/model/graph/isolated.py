"""The process that runs users' graphs (``sessions.py``), from the command's side: its limits, and its end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code, TrbError

SECONDS, MEMORY = "TRB_MODEL_SECONDS", "TRB_MODEL_MEMORY"
"""Variables of the environment: the longest run in seconds, the most memory in GiB."""
BASE, BYTES_PER_SECOND = 300.0, 4 << 20
"""The longest run of a model without weights, and the weights for which a second is added."""
LEAST = 1 << 30
SMALLEST = 0.5
"""GiB that may be set."""
MOST = 1e6
"""Largest value of either variable: the operating system waits for some weeks at most."""
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup/memory.max")
GONE = 60.0
"""Seconds for calls that run no graph."""
_ALLOCATION = re.compile(r"bad_?alloc|[Ff]ailed to allocate|bad allocation|Cannot allocate")


class Failed(Exception):
    """ONNX Runtime's own error."""


class Sessions:
    """The process; it is started when it is first asked, and again after it was ended."""

    def __init__(self) -> None:
        self._child: process.Process | None = None
        self._connection: Connection | None = None
        self._memory = 0
        self.done: list[int] = []
        """Numbers of models that nobody asks any more; told with the next question."""

    def start(self) -> Connection:
        """Start it unless it runs: what it imports takes a moment."""
        if self._connection is None:
            self._memory = memory()
            module = "triton_repo_builder.model.graph.sessions"
            self._child, self._connection = process.spawn_python(module, str(self._memory))
        return self._connection

    def ask(self, name: str, arguments: Sequence[Any], longest: float, where: str) -> Any:
        """The answer to one call. Raises ``Failed``, and ``TrbError`` if a limit was reached or it ended."""
        connection = self.start()
        try:
            connection.send((name, tuple(arguments), tuple(self.done)))
            self.done.clear()
            if not connection.poll(longest):
                self.end()
                raise _error(
                    f"the model ran for more than {longest:g} s and was ended",
                    where,
                    f"if it needs longer on this machine, set {SECONDS} to the seconds that one run may "
                    "take; else the graph does not end: export it again",
                )
            kind, answer = connection.recv()
        except (EOFError, OSError):
            raise self._lost(where) from None
        except BaseException:  # Ctrl-C: an answer that comes later belongs to no question
            self.end()
            raise
        if kind is None:
            return answer
        if kind == "MemoryError" or _ALLOCATION.search(answer):
            self.end()
            raise self._too_large(where)
        raise Failed(answer)

    def _lost(self, where: str) -> TrbError:
        code = self.end()
        if code == -signal.SIGKILL or code == -signal.SIGABRT:
            return self._too_large(where)
        return _error(
            f"the process that ran the model ended ({_ending(code)})",
            where,
            "ONNX Runtime crashed on it: export the model again, or with another version of the exporter",
        )

    def _too_large(self, where: str) -> TrbError:
        return _error(
            f"the model needs more memory than the {self._memory / (1 << 30):.1f} GiB that it may use",
            where,
            f"build on a machine with more free memory, or set {MEMORY} to the GiB that it may use; a small "
            "model that fills the memory is damaged or hostile",
        )

    def end(self) -> int:
        """Kill it; its exit code."""
        child, self._child = self._child, None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if child is None:
            return 0
        if child.poll() is None:
            child.kill()
        return child.wait()


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _error(message: str, where: str, remedy: str) -> TrbError:
    return TrbError(Code.GOLDEN_FAILED, message, where=where, remedy=remedy)


SESSIONS = Sessions()


def ask(name: str, *arguments: Any, longest: float = GONE, where: str = "") -> Any:
    """``Sessions.ask`` of the one process that a command has."""
    return SESSIONS.ask(name, arguments, longest, where)


def start() -> None:
    """Have the process ready by the time it is needed."""
    SESSIONS.start()


def longest(size: int) -> float:
    """Seconds that one run of a model with so many bytes may take. Raises ``TrbError`` USAGE."""
    return _set(SECONDS) or BASE + size / BYTES_PER_SECOND


def memory() -> int:
    """Bytes that the process may use: what is free now. Raises ``TrbError`` USAGE."""
    if stated := _set(MEMORY):
        if stated < SMALLEST:
            raise TrbError(
                Code.USAGE,
                f"{MEMORY} is {stated:g} GiB, and ONNX Runtime itself needs {SMALLEST:g}",
                remedy=f"raise or unset {MEMORY}",
            )
        return int(stated * (1 << 30))
    free = re.search(r"MemAvailable:\s+(\d+) kB", MEMINFO.read_text()) if MEMINFO.is_file() else None
    limits = [int(free[1]) << 10] if free else []
    if CGROUP.is_file() and (text := CGROUP.read_text().strip()).isdigit():
        limits.append(int(text))
    return max(LEAST, min(limits, default=LEAST * 16))


def _set(name: str) -> float:
    """A variable's number; 0 if it is not set."""
    text = os.environ.get(name, "")
    if not text:
        return 0.0
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < MOST:
        raise TrbError(
            Code.USAGE, f"{name} is '{text[:40]}', not a number above 0", remedy=f"correct or unset {name}"
        )
    return number
