"""The handle to a running embedded server."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

from triton_repo_builder.client import Urls
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.process import Process
from triton_repo_builder.serve.embedded import install
from triton_repo_builder.serve.managed_server import Handle
from triton_repo_builder.serve.processes.stubs import Stubs

HURRY = 1.0
"""Seconds for a server that nobody uses yet, or that cannot end by itself because a load or unload hangs."""


class EmbeddedServer(Handle):
    """A tritonserver below its guard (guard.py)."""

    engine = "embedded"

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
        super().__init__(urls, log=log, folder=folder, endpoints=endpoints, stubs=stubs)
        self._guard = guard
        self.pid = pid
        self.about = install.described()

    def alive(self) -> bool:
        """Whether the server runs."""
        return self._guard.poll() is None

    def died(self) -> TrbError:
        """What to say of a server that ended by itself; the log is kept."""
        code = self._guard.wait()
        how = f"killed by {signal.Signals(code - 128).name}" if 128 < code < 160 else f"exit code {code}"
        last = self.last_words()
        return TrbError(
            Code.SERVER_DIED,
            f"tritonserver ended ({how}){last}",
            remedy=f"the server's whole output is in {self.keep_log()}",
        )

    def _end(self, hurry: bool) -> None:
        if not self.alive():
            return
        hurry = hurry or any(stub.dead for stub in self.stubs.scan())
        self._ask()
        if hurry:
            deadline = time.monotonic() + HURRY
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.02)
            self._ask()
        self._guard.wait()

    def _kill(self) -> None:
        # The second signal makes the guard kill at once.
        self._ask()
        self._guard.wait()

    def _ask(self) -> None:
        with suppress(ProcessLookupError):
            self._guard.send_signal(signal.SIGTERM)
