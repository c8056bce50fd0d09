"""A running embedded server."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.process import Process
from triton_repo_builder.run.serve.managed_server import LaunchedServer, ManagedServer
from triton_repo_builder.run.serve.processes.stubs import StubProcesses

HURRY = 1.0
"""Grace period of a server without clients yet, or one that cannot end because a load or unload hangs."""


class EmbeddedServer(ManagedServer):
    """A tritonserver whose parent is a supervisor process (supervisor.py)."""

    engine = "embedded"

    def __init__(self, supervisor: Process, pid: int, launched: LaunchedServer, stubs: StubProcesses) -> None:
        super().__init__(launched, stubs)
        self._supervisor = supervisor
        self.pid = pid

    def alive(self) -> bool:
        """Whether the server runs."""
        return self._supervisor.poll() is None

    def died(self) -> TrbError:
        """The error for a server that ended by itself; keeps the log."""
        code = self._supervisor.wait()
        self.final = code == 0  # by a SIGTERM of somebody else
        how = f"killed by {signal.Signals(code - 128).name}" if 128 < code < 160 else f"exit code {code}"
        return TrbError(
            Code.SERVER_DIED,
            f"tritonserver ended ({how}){self.last_errors()}",
            remedy=self.end_remedy(),
        )

    def _end(self, hurry: bool) -> None:
        if not self.alive():
            return
        hurry = hurry or any(stub.dead for stub in self.stubs.scan())
        self._terminate()
        if hurry:
            deadline = time.monotonic() + HURRY
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.02)
            self._terminate()
        self._supervisor.wait()

    def _kill(self) -> None:
        # The second signal makes the supervisor kill at once.
        self._terminate()
        self._supervisor.wait()

    def _terminate(self) -> None:
        with suppress(ProcessLookupError):
            self._supervisor.send_signal(signal.SIGTERM)
