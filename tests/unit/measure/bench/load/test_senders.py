"""How the clients of ``trb bench`` name what became of a request."""

from __future__ import annotations

import asyncio
import socket
import time

from triton_repo_builder.measure.bench.load.messages import NO_CONNECTION, TIMEOUT, WorkerLoad
from triton_repo_builder.measure.bench.load.senders import Failure, HttpSender


def send(address: str, timeout: float) -> Failure | None:
    load = WorkerLoad(
        protocol="http", address=f"http://{address}/x", bodies=(b"",), headers=({},), first=0,
        clients=1, rate=None, in_flight=1, timeout=timeout, seed=1,
    )  # fmt: skip

    async def one() -> Failure | None:
        sender = HttpSender(load)
        try:
            return await sender.send(0)
        finally:
            await sender.close()

    return asyncio.run(one())


def test_a_connection_that_takes_too_long_is_a_timeout() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(0)
        address = door.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            # The queue is full now, and Linux leaves the next ones without an answer.
            second.setblocking(False)
            second.connect_ex(address)
            assert send(f"127.0.0.1:{address[1]}", 0.1) == (TIMEOUT, "no connection within 0.1 s")
    failure = send(f"127.0.0.1:{address[1]}", 5.0)
    assert failure is not None
    assert failure[0] == NO_CONNECTION, "nobody listens any more"


def test_a_request_is_late_by_one_clock() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        begun = time.monotonic()
        failure = send(f"127.0.0.1:{door.getsockname()[1]}", 0.1)
    assert failure == (TIMEOUT, "no answer within 0.1 s")
    assert time.monotonic() - begun < 3
