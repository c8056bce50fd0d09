"""Send ready-made requests as cheaply as Python can: on one machine the client takes CPU from the server.

A gRPC request is passed through as bytes, without encoding or decoding. HTTP is written by hand on asyncio's
transports: 15 us of CPU per request, where a general client library takes over 100.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from typing import Protocol

from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.measure.bench.load.messages import NO_CONNECTION, TIMEOUT, WorkerLoad
from triton_repo_builder.run.client.grpc import QUEUE_REFUSALS, AsyncConnection

CLIENTS_PER_CONNECTION = 16
LARGEST_EXAMPLE = 300
CONNECT = 5.0
"""Seconds that a level waits for its gRPC connections before it begins without them."""

Failure = tuple[str, str]
"""Kind and message."""


class Sender(Protocol):
    """One way to send."""

    async def open(self) -> None:
        """Open connections as far as possible: a missing server shows as failed requests."""

    async def send(self, number: int) -> Failure | None:
        """Send one body; None on success, else the failure."""

    async def close(self) -> None:
        """Close all connections."""


def sender(load: WorkerLoad) -> Sender:
    """The sender for a load's protocol."""
    return GrpcSender(load) if load.protocol == "grpc" else HttpSender(load)


class GrpcSender:
    """gRPC, with a connection per 16 clients: one alone serialises large tensors."""

    def __init__(self, load: WorkerLoad) -> None:
        self._load = load
        self._connections: list[AsyncConnection] = []

    async def open(self) -> None:
        """Open the connections."""
        count = -(-(self._load.clients or 64) // CLIENTS_PER_CONNECTION)
        self._connections = [AsyncConnection(self._load.address) for _ in range(count)]
        for connection in self._connections:
            if not await connection.connect(CONNECT):
                return

    async def send(self, number: int) -> Failure | None:
        """One call."""
        load = self._load
        connection = self._connections[number % len(self._connections)]
        status = await connection.send(load.bodies[number % len(load.bodies)], load.timeout)
        if status is None:
            return None
        name, details = status
        if name == "DEADLINE_EXCEEDED":
            return TIMEOUT, f"no answer within {load.timeout:g} s"
        lost = name == "UNAVAILABLE" and not details.endswith(QUEUE_REFUSALS)
        return (NO_CONNECTION if lost else f"gRPC {name}"), _short(details)

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.close()


class HttpSender:
    """HTTP/1.1 with as many kept-alive connections as requests in flight."""

    def __init__(self, load: WorkerLoad) -> None:
        parts = urllib.parse.urlsplit(load.address)
        self._host = parts.hostname or ""
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._timeout = load.timeout
        pairs = zip(load.bodies, load.headers, strict=True)
        self._requests = [_request(parts.netloc, parts.path, body, headers) for body, headers in pairs]
        self._free: list[_Connection] = []

    async def open(self) -> None:
        """Nothing: connections are made as they are needed, in the warm-up."""

    async def send(self, number: int) -> Failure | None:
        """One request on a free connection, or on a new one: connecting is part of its time."""
        late = time.monotonic() + self._timeout
        # The last one used is the one least likely to have been closed by the server meanwhile.
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                break
        else:
            try:
                connection = await asyncio.wait_for(self._connect(), self._timeout)
            except (OSError, asyncio.TimeoutError) as error:
                if isinstance(error, asyncio.TimeoutError) and not getattr(error, "errno", None):
                    return TIMEOUT, f"no connection within {self._timeout:g} s"
                return NO_CONNECTION, _short(str(error) or type(error).__name__)
        failure = await connection.exchange(
            self._requests[number % len(self._requests)], late, f"no answer within {self._timeout:g} s"
        )
        if connection.usable:
            self._free.append(connection)
        return failure

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return protocol

    async def close(self) -> None:
        """Close what is open."""
        for connection in self._free:
            connection.drop()


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._answer: asyncio.Future[Failure | None] | None = None
        self._body = -1
        self._length = -1
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def exchange(self, request: bytes, late: float, message: str) -> asyncio.Future[Failure | None]:
        """Send; the future is done when the answer is here, lost, or not there at ``late``."""
        self._answer = self._loop.create_future()
        self._timer = self._loop.call_later(late - time.monotonic(), self._late, message)
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._buffer += data
        if self._body < 0:
            self._body = self._buffer.find(b"\r\n\r\n") + 4
            if self._body < 4:
                self._body = -1
                return
            head = bytes(self._buffer[: self._body]).lower()
            start = head.find(b"content-length:")
            self._length = -1 if start < 0 else int(head[start + 15 : head.find(b"\r\n", start)])
            self._close = b"connection: close" in head
        # Without a length the answer is chunked (a proxy does that): its end mark must be the last bytes.
        whole = self._body + self._length
        if len(self._buffer) >= whole if self._length >= 0 else self._buffer.endswith(b"\r\n0\r\n\r\n"):
            self._finish()

    def _finish(self) -> None:
        status = bytes(self._buffer[9:12])
        text = b"" if status == b"200" else bytes(self._buffer[self._body :])
        self._buffer.clear()
        self._body = -1
        self.usable = not self._close
        self._done(None if status == b"200" else (f"HTTP {status.decode('latin-1')}", _message(text)))

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self.usable = False
        self._done((NO_CONNECTION, _short(str(error) if error else "the server closed the connection")))

    def _late(self, message: str) -> None:
        self._done((TIMEOUT, message))
        # Its answer may still come, and would be taken for that of the next request.
        self.drop()

    def _done(self, failure: Failure | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._timer.cancel()
            self._answer.set_result(failure)

    def drop(self) -> None:
        """Close at once."""
        self.usable = False
        self._transport.abort()


def _request(host: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = {"Host": host, **headers, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def _message(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        return _short(str(load_json(text)["error"]))
    except DAMAGED:
        return _short(text)


def _short(text: str) -> str:
    return text if len(text) <= LARGEST_EXAMPLE else f"{text[:LARGEST_EXAMPLE]} …"
