"""The client processes, from the run's side."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.load.messages import (
    Begin,
    Chunk,
    Ready,
    Take,
    WorkerLoad,
)

START = 60.0
"""Seconds in which a client process must be there; importing gRPC takes one on a busy machine."""
ANSWER = 30.0
"""Seconds in which it must answer the run."""


class WorkerPool:
    """Up to ``most`` client processes, started as they are needed and kept for all levels."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="trb-bench-"))
        self._workers: list[_Worker] = []
        self._active: list[_Worker] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def prepare(self, loads: Sequence[WorkerLoad]) -> None:
        """Give each process its share, and return when all are connected."""
        while len(self._workers) < len(loads):
            self._workers.append(_Worker(self._folder, len(self._workers)))
        self._active = self._workers[: len(loads)]
        for worker, load in zip(self._active, loads, strict=True):
            worker.send(load)
        for worker in self._active:
            worker.receive(Ready, ANSWER)

    def begin(self, at: float) -> None:
        """Start all at the same moment."""
        for worker in self._active:
            worker.send(Begin(at=at))

    def take(self) -> list[Chunk]:
        """Records of each worker since the last call."""
        return self._ask(Take(), ANSWER)

    def stop(self, timeout: float) -> list[Chunk]:
        """Stop sending, wait for the requests in flight, and return the remaining records."""
        return self._ask(Take(stop=True), timeout + ANSWER)

    def _ask(self, message: Take, seconds: float) -> list[Chunk]:
        for worker in self._active:
            worker.send(message)
        return [worker.receive(Chunk, seconds) for worker in self._active]


class _Worker:
    def __init__(self, folder: Path, number: int) -> None:
        self._log = folder / f"{number}.log"
        path = folder / f"{number}.socket"
        package = str(Path(__file__).resolve().parents[4])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GRPC_VERBOSITY": "NONE"}
        argv = process.python("triton_repo_builder.measure.bench.load.worker", str(path))
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(path))
            door.listen(1)
            door.settimeout(0.1)
            self._process = process.spawn(argv, log=self._log, env=environment)
            try:
                self._connection = self._accept(door)
            except BaseException:
                self.end()
                raise

    def _accept(self, door: socket.socket) -> Connection[Any, Any]:
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                accepted, _ = door.accept()
            except TimeoutError:
                continue
            accepted.setblocking(True)
            return Connection(accepted.detach())
        raise self._lost("did not start")

    def send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise self._lost("ended") from None

    def receive(self, kind: type[Any], seconds: float) -> Any:
        try:
            if not self._connection.poll(seconds):
                raise self._lost(f"did not answer for {seconds:g} s")
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise self._lost("ended") from None
        if not isinstance(answer, kind):
            raise self._lost("sent an unexpected message")
        return answer

    def _lost(self, reason: str) -> TrbError:
        self.end()
        text = files.read_text(self._log, "replace").strip() if self._log.exists() else ""
        return TrbError(
            Code.TIMED_OUT,
            f"a client process of the benchmark {reason}"
            + (f"; its last output:\n{text[-2000:]}" if text else ""),
            remedy="use fewer clients (--concurrency) or processes (--processes), or report this as a bug",
        )

    def end(self) -> None:
        """Kill it: it holds nothing that needs saving."""
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
