"""The handle to a running embedded server."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.process import Process
from triton_repo_builder.serving import causes
from triton_repo_builder.serving.engine import Failure, Urls
from triton_repo_builder.serving.stubs import Stubs
from triton_repo_builder.serving.watch import Watch

TICK = 0.1
HURRY = 1.0
"""Seconds for a server that nobody uses yet, or that cannot end by itself because a load or unload hangs."""


class EmbeddedServer:
    """A tritonserver below its guard (guard.py). Leaving the ``with`` block stops it."""

    def __init__(
        self,
        guard: Process,
        pid: int,
        urls: Urls,
        *,
        log: Path,
        folder: Path,
        endpoints: tuple[str, ...],
        stubs: Stubs,
    ) -> None:
        self._guard = guard
        self.pid = pid
        self.urls = urls
        self.log = log
        self.endpoints = endpoints
        self.stubs = stubs
        self._folder = folder
        self._watch: Watch | None = None
        self._asked = False
        self._error: TrbError | None = None
        self._lock = threading.Lock()

    def alive(self) -> bool:
        """Whether the server runs."""
        return self._guard.poll() is None

    def watch(self, make: Callable[[Callable[[TrbError], None]], Watch]) -> None:
        """Start looking after the models; ``make`` gets what to call when that fails."""
        self._watch = make(self._give_up)
        self._watch.start()

    def failures(self) -> tuple[Failure, ...]:
        """Models that broke while the server ran and could not be brought back."""
        error = self._error
        return () if error is None else (Failure(model=error.where, cause=error.message),)

    def wait(self) -> None:
        """Return when the server was stopped; raise ``TrbError`` if it ended for another reason."""
        while self.alive() and self._error is None:
            time.sleep(TICK)
        if self._error is not None:
            raise self._error
        if not self._asked:
            raise self.died()

    def died(self) -> TrbError:
        """What to say of a server that ended by itself; the log is kept."""
        code = self._guard.wait()
        how = f"killed by {signal.Signals(code - 128).name}" if 128 < code < 160 else f"exit code {code}"
        last = causes.last_errors(causes.read(self.log))
        log = self.keep_log()
        return TrbError(
            Exit.SERVER_DIED,
            f"tritonserver ended ({how})" + (f"; it said last:\n{_indent(last)}" if last else ""),
            remedy=f"the server's whole output is in {log}",
        )

    def keep_log(self) -> Path:
        """Move the log out of the folder that goes away when the server is stopped."""
        if self.log.is_relative_to(self._folder) and self.log.exists():
            kept = Path(tempfile.gettempdir()) / f"{self._folder.name}.log"
            shutil.copyfile(self.log, kept)
            self.log = kept
        return self.log

    def stop(self, *, hurry: bool = False) -> None:
        """Stop the server and leave nothing behind; harmless when it already ended.

        In a ``hurry`` running requests and slow unloads are not waited for.
        """
        self._asked = True
        if self._watch is not None:
            self._watch.stop()
        with self._lock:
            try:
                self._end(hurry)
            except BaseException:
                # Interrupted while waiting: the second signal makes the guard kill at once.
                self._signal()
                self._guard.wait()
                raise
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, hurry: bool) -> None:
        if not self.alive():
            return
        hurry = hurry or any(stub.dead for stub in self.stubs.scan())
        self._signal()
        if hurry:
            deadline = time.monotonic() + HURRY
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.02)
            self._signal()
        self._guard.wait()

    def _signal(self) -> None:
        with suppress(ProcessLookupError):
            self._guard.send_signal(signal.SIGTERM)

    def _give_up(self, error: TrbError) -> None:
        """Called by the watch: no server that only seems to be ready may stay."""
        self.keep_log()
        self._error = error
        self._signal()

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
