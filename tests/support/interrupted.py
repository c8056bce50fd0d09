"""A ``trb`` in a process of its own that gets a signal at a moment, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.cli import ARGV, own
from tests.support.serve_repository import until

PATIENCE = 120
"""Seconds for anything to happen on a machine that is busy with other tests."""


class Command:
    """A running command; every process that it starts carries a mark in its environment."""

    def __init__(self, tmp: Path, *arguments: str | Path, **options: Any) -> None:
        self.tmp = tmp / "tmp"
        self.tmp.mkdir(exist_ok=True)
        self.mark = f"TRB_TEST_MARK={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [*ARGV, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own(tmp), name: value, "PYTHONUNBUFFERED": "1"},
            **options,
        )
        self._output = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while block := os.read(self.process.stdout.fileno(), 1 << 16):
            self._output += block

    @property
    def output(self) -> str:
        """Everything that it has printed so far."""
        return self._output.decode()

    def says(self, text: str) -> None:
        """Wait for a text of its output."""
        self.reaches(lambda: text in self.output)

    def reaches(self, condition: Callable[[], object]) -> None:
        """Wait for something that must come true before the command ends."""
        until(lambda: condition() or self.process.poll() is not None, PATIENCE)
        assert self.process.poll() is None, self.output

    def ends(self, *numbers: signal.Signals, pause: float = 0.3) -> int:
        """Send signals, one after the other; the exit code. Nothing of it may be left."""
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(pause if len(numbers) > 1 else 0)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert "Traceback" not in self.output, self.output
        until(lambda: not self.left(), 10)
        assert not list(self.tmp.iterdir()), (list(self.tmp.rglob("*"))[:20], self.output)
        return code

    def left(self) -> list[str]:
        """Command lines of the processes that carry its mark."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
        return found


@contextmanager
def command(tmp: Path, *arguments: str | Path, **options: Any) -> Iterator[Command]:
    """``trb`` with these arguments, killed in the end whatever happens."""
    running = Command(tmp, *arguments, **options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
