"""A running server in a container."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve import log_lines
from triton_repo_builder.run.serve.docker import daemon
from triton_repo_builder.run.serve.docker.cleanup import Cleanup
from triton_repo_builder.run.serve.docker.processes import ContainerStubProcesses
from triton_repo_builder.run.serve.docker.volume import MODELS
from triton_repo_builder.run.serve.managed_server import LaunchedServer, ManagedServer
from triton_repo_builder.run.serve.processes import proc
from triton_repo_builder.run.serve.processes.stubs import ProcessLister, StubProcesses

TICK = 0.05
STOPPED, REMOVED = "it was stopped from outside", "it was removed"
DAEMON_ENDS = 3.0
"""Seconds within which a daemon that stops its containers also ends."""
MARGIN = 3
"""Seconds beyond the server's own limit until Docker kills it."""


class ContainerServer(ManagedServer):
    """A tritonserver in a container that is removed with this object, or by its supervisor after a crash."""

    engine = "docker"

    def __init__(
        self, client: Any, container: Any, cleanup: Cleanup, launched: LaunchedServer, options: ServeOptions
    ) -> None:
        pid = _local_pid(container)
        stubs: ProcessLister = ContainerStubProcesses(container, MODELS)
        if pid:
            # For processes of this machine /proc has more, and costs less than the daemon.
            stubs = StubProcesses(pid, MODELS)
        super().__init__(launched, stubs)
        self.pid = pid
        self.container = str(container.name)
        self._client = client
        self._docker = container
        self._cleanup = cleanup
        self._exit_timeout = options.exit_timeout
        self._log_json = options.log_json
        self._code: int | None = None
        self._lost = False
        self._log_ended = threading.Event()
        for work in (self._await, self._follow):
            threading.Thread(target=work, daemon=True).start()

    def alive(self) -> bool:
        """Whether the container runs, as far as the daemon reports."""
        return self._code is None and not self._lost

    def died(self) -> TrbError:
        """The error for a container that ended by itself; keeps the log."""
        how = self._how()
        self.final = self._lost or how in (STOPPED, REMOVED)
        if self._lost:
            return daemon.gone()
        self._log_ended.wait(5)
        return TrbError(
            Code.SERVER_DIED,
            f"the container ended ({how}){self.last_errors()}",
            where=self.container,
            remedy=self.end_remedy(),
        )

    def _how(self) -> str:
        """Cause of the end; detects a daemon that went away."""
        try:
            self._docker.reload()
            state = self._docker.attrs["State"]
            code = int(state.get("ExitCode") or self._code or 0)
            if state.get("OOMKilled"):
                return "out of memory"
            if code in (0, 143):
                # Stopped from outside: by docker stop, or because its daemon is about to end.
                time.sleep(DAEMON_ENDS)
                self._docker.client.ping()
                return STOPPED
        except daemon.not_found():
            return REMOVED
        except daemon.errors():
            self._lost = True
            return ""
        return {137: "killed", 127: "its command was not found"}.get(code, f"exit code {code}")

    def _await(self) -> None:
        """Record the exit of the container."""
        while True:
            try:
                self._code = int(self._docker.wait(timeout=3600)["StatusCode"])
                return
            except daemon.not_found():
                self._code = 0 if self._stop_requested else 137
                return
            except daemon.read_timeout():
                continue
            except daemon.errors():
                # A daemon that is stopped ends its containers first, and this call with them.
                time.sleep(DAEMON_ENDS)
                with suppress(*daemon.errors()):
                    self._client.ping()
                    continue
                self._lost = True
                return

    def _follow(self) -> None:
        """Write the container's output to the log while it runs."""
        with suppress(*daemon.errors(), OSError), self._appended() as sink:
            chunks = self._docker.logs(stream=True, follow=True)
            for chunk in _as_json(chunks) if self._log_json else chunks:
                sink.write(chunk)
                sink.flush()
        self._log_ended.set()

    def _appended(self) -> IO[bytes]:
        """The log: in a private folder, or made and resolved by ``loading.start``."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(self.log, flags, 0o600), "ab")

    def _end(self, hurry: bool) -> None:
        if self.alive():
            with suppress(*daemon.errors()):
                self._docker.stop(timeout=1 if hurry else self._exit_timeout + MARGIN)
            self._log_ended.wait(2)
        self._kill()

    def _kill(self) -> None:
        self._cleanup.clear(self._client)
        self._client.close()

    def _terminate(self) -> None:
        with suppress(*daemon.answer_errors()):
            self._docker.kill("SIGTERM")
        deadline = time.monotonic() + self._exit_timeout
        while self.alive() and time.monotonic() < deadline:
            time.sleep(TICK)


def _as_json(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The output as JSON; a message that nothing follows is not held for long."""
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def read() -> None:
        with suppress(*daemon.errors()):
            for chunk in chunks:
                waiting.put(chunk)
        waiting.put(None)

    threading.Thread(target=read, daemon=True).start()
    lines = log_lines.JsonLines(utc=True)
    while True:
        try:
            chunk = waiting.get(timeout=log_lines.IDLE if lines.open else None)
        except queue.Empty:
            yield lines.flush()
            continue
        if chunk is None:
            yield lines.flush()
            return
        yield lines.feed(chunk)


def _local_pid(container: Any) -> int | None:
    """Process id of the server, if the container's processes are this machine's."""
    pid = int(container.attrs["State"].get("Pid") or 0)
    try:
        inside = container.id in (proc.PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return None
    return pid if inside or any("tritonserver" in argument for argument in proc.arguments(pid)) else None
