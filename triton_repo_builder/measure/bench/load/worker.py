"""A client process; it ends with the socket.

python -m triton_repo_builder.measure.bench.load.worker SOCKET
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import socket
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from triton_repo_builder.measure.bench.load.messages import (
    NO_CONNECTION,
    OK,
    OVERRUN,
    Begin,
    Chunk,
    Ready,
    Take,
    WorkerLoad,
)
from triton_repo_builder.measure.bench.load.senders import Failure, Sender, sender

TICK = 0.02
GRAIN = 0.001
"""asyncio rounds its waits up to this, so this much lateness is not counted."""
PAUSE = 0.05
"""Seconds that a client waits after a refused connection before it tries again."""
SWITCH = 0.0002
"""Seconds between thread switches: at Python's 5 ms the arrivals would come late."""


class Recorder:
    """Requests that ended since the last hand-over. Only the event loop touches it."""

    def __init__(self) -> None:
        self.sent = 0
        self._kinds: dict[str, int] = {"": OK}
        self._examples: dict[str, str] = {}
        self._clear()

    def _clear(self) -> None:
        self._due, self._ended, self._kind = array("d"), array("d"), array("H")
        self.lag = array("d")

    def add(self, due: float, ended: float, failure: Failure | None) -> None:
        """Note one request."""
        self._due.append(due)
        self._ended.append(ended)
        if failure is None:
            self._kind.append(OK)
            return
        name, message = failure
        self._kind.append(self._kinds.setdefault(name, len(self._kinds)))
        self._examples.setdefault(name, message)

    def take(self) -> Chunk:
        """Return the recorded requests, and start a new record."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        chunk = Chunk(
            due=self._due,
            ended=self._ended,
            kind=self._kind,
            kinds=tuple(self._kinds),
            examples=dict(self._examples),
            lag=self.lag,
            cpu=used.ru_utime + used.ru_stime,
            sent=self.sent,
        )
        self._clear()
        return chunk


class Runner:
    """One load, from connecting to the last answer."""

    def __init__(self, load: WorkerLoad) -> None:
        self._load = load
        self._sender: Sender = sender(load)
        self._next = load.first
        self._stopping = False
        self._under_way: set[asyncio.Task[None]] = set()
        self._arrivals: threading.Thread | None = None
        self.recorder = Recorder()

    async def open(self) -> None:
        """Connect."""
        await self._sender.open()

    def start(self, at: float) -> None:
        """Begin at a reading of the clock."""
        self._tasks = [asyncio.create_task(self._ticks())]
        if self._load.clients is not None:
            self._tasks += [asyncio.create_task(self._client(at)) for _ in range(self._load.clients)]
            return
        loop = asyncio.get_running_loop()
        # A thread, because the event loop's clock is no finer than a millisecond.
        self._arrivals = threading.Thread(target=self._arrive, args=(at, loop), daemon=True)
        self._arrivals.start()

    async def stop(self) -> None:
        """Send no more, wait for the requests in flight, disconnect."""
        self._stopping = True
        if self._arrivals is not None:
            await asyncio.to_thread(self._arrivals.join)
        await asyncio.sleep(0)  # arrivals that were handed to the loop become tasks
        await asyncio.gather(*self._tasks, *self._under_way)
        await self._sender.close()

    async def _client(self, at: float) -> None:
        await asyncio.sleep(at - time.monotonic())
        while not self._stopping:
            failure = await self._one(time.monotonic())
            if failure and failure[0] == NO_CONNECTION:
                await asyncio.sleep(PAUSE)

    async def _one(self, due: float, number: int | None = None) -> Failure | None:
        if number is None:
            number, self._next = self._next, self._next + 1
        self.recorder.sent += 1
        failure = await self._sender.send(number)
        self.recorder.add(due, time.monotonic(), failure)
        return failure

    def _arrive(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        assert self._load.rate is not None
        chance = ((offset, None) for offset in poisson_arrivals(self._load.rate, self._load.seed))
        for offset, number in self._load.schedule or chance:
            while (left := at + offset - time.monotonic()) > 0:
                time.sleep(min(left, 0.05))
                if self._stopping:
                    return
            if self._stopping:
                return
            loop.call_soon_threadsafe(self._launch, at + offset, number)

    def _launch(self, due: float, number: int | None) -> None:
        if len(self._under_way) >= self._load.in_flight:
            text = f"{self._load.in_flight} requests of this client process were waiting already"
            self.recorder.add(due, time.monotonic(), (OVERRUN, text))
            return
        task = asyncio.create_task(self._open_one(due, number))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _open_one(self, due: float, number: int | None) -> None:
        await self._one(due, number)

    async def _ticks(self) -> None:
        """Sleep, and record how late the event loop wakes up."""
        while not self._stopping:
            start = time.monotonic()
            await asyncio.sleep(TICK)
            self.recorder.lag.append(max(0.0, time.monotonic() - start - TICK - GRAIN))


def poisson_arrivals(rate: float, seed: int) -> Iterator[float]:
    """Endless arrival times in seconds since the start: the gaps are exponential, with mean 1 / rate.

    Streams of several processes add up to one of the summed rate, as Poisson processes do.
    """
    chance = random.Random(seed)
    due = 0.0
    while True:
        due += chance.expovariate(rate)
        yield due


async def serve(connection: Connection, folder: Path) -> None:
    """Execute the run's commands until it disconnects."""
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[object] = asyncio.Queue()
    threading.Thread(target=_listen, args=(connection, folder, loop, inbox.put_nowait), daemon=True).start()
    runner: Runner | None = None
    while True:
        message = await inbox.get()
        if isinstance(message, WorkerLoad):
            runner = Runner(message)
            await runner.open()
            connection.send(Ready())
        elif isinstance(message, Begin) and runner:
            runner.start(message.at)
        elif isinstance(message, Take) and runner:
            if message.stop:
                await runner.stop()
            connection.send(runner.recorder.take())


def _listen(
    connection: Connection, folder: Path, loop: asyncio.AbstractEventLoop, report: Callable[[object], None]
) -> None:
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            # The run was killed: no client may go on without it, and nothing may stay of it.
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        loop.call_soon_threadsafe(report, message)


def main(path: str) -> None:
    """Connect to the run and serve it."""
    sys.setswitchinterval(SWITCH)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        connection = Connection(client.detach())
    asyncio.run(serve(connection, Path(path).parent))


if __name__ == "__main__":
    main(sys.argv[1])
