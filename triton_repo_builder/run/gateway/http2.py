"""Unary gRPC calls over HTTP/2 on asyncio: requests as bytes in, messages as bytes out.

gRPC's own library hands every call to another thread and back: 0.4 ms of CPU, of cores that are shared with
the model (benchmarks/gateway.py). HTTP/2: RFC 9113; header compression: ``hpack``; calls:
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import urllib.parse
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import hpack

from triton_repo_builder.run.client.grpc import TLS

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
TABLE_SIZE, NO_PUSH, MOST_STREAMS, WINDOW, FRAME = 1, 2, 3, 4, 5
"""Settings by their number."""
LARGEST_WINDOW = 2**31 - 1
LARGEST_FRAME = 2**24 - 1
FIRST_WINDOW = 65_535
FIRST_FRAME = 16_384
REFRESH = 2**30
"""Bytes after which the window of a connection is opened again."""
FRAME_HEAD = struct.Struct(">HBBBI")
"""Length in 16 and 8 bits, type, flags, stream."""
CANCEL = 8
LAST_STREAM = 2**31 - 3
EMPTY = memoryview(b"")
CONNECT = 5.0
"""Seconds to connect."""
CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""gRPC's statuses by their number."""
RESET = {7: "UNAVAILABLE", 8: "CANCELLED", 11: "RESOURCE_EXHAUSTED", 12: "PERMISSION_DENIED"}
"""gRPC's status of a stream that the server reset, by HTTP/2's error code; INTERNAL for any other."""
HTTP = {"401": "UNAUTHENTICATED", "403": "PERMISSION_DENIED", "404": "UNIMPLEMENTED"}
HTTP |= dict.fromkeys(("429", "502", "503", "504"), "UNAVAILABLE")
"""gRPC's status of an answer that is not gRPC's, a proxy's say; UNKNOWN for any other."""


class CallFailed(Exception):
    """A call whose status is not OK: the status's name, and the server's words."""

    def __init__(self, status: str, details: str) -> None:
        super().__init__(details or status)
        self.status = status
        self.details = details


@dataclass(slots=True, eq=False)
class Stream:
    """One call under way."""

    answer: asyncio.Future[bytes]
    window: int
    """Bytes that the server takes of it."""
    unsent: memoryview = EMPTY
    parts: list[bytes] = field(default_factory=list)
    status: str = ""
    """HTTP's status."""


class Connection(asyncio.Protocol):
    """One connection; calls share it."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has stated its limits."""
        self.transport: Any = None
        self.streams: dict[int, Stream] = {}
        self.usable = True
        self.most_streams = LAST_STREAM
        self._next = 1
        self._window = FIRST_WINDOW
        self._stream_window = FIRST_WINDOW
        self._frame = FIRST_FRAME
        self._buffer = bytearray()
        """Bytes of a frame that is not complete."""
        self._lacking = 0
        """How many bytes it must have to be looked at again."""
        self._block = bytearray()
        self._taken = 0
        self._decoder: Any = hpack.Decoder(max_header_list_size=1 << 20)
        self._decoded: dict[bytes, dict[str, str]] = {}
        self._ends = False
        self._out: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        """Say what this side takes: answers of any size, headers without a table."""
        self.transport = transport
        settings = {TABLE_SIZE: 0, NO_PUSH: 0, WINDOW: LARGEST_WINDOW, FRAME: LARGEST_FRAME}
        payload = b"".join(struct.pack(">HI", *pair) for pair in settings.items())
        update = struct.pack(">I", LARGEST_WINDOW - FIRST_WINDOW)
        transport.write(PREFACE + frame(SETTINGS, 0, 0, payload) + frame(WINDOW_UPDATE, 0, 0, update))

    def connection_lost(self, exc: Exception | None) -> None:
        """Every call that is under way fails."""
        self.usable = False
        if not self.ready.done():
            self.ready.set_exception(OSError("the server closed the connection"))
        for stream in list(self.streams.values()):
            fail(stream, "UNAVAILABLE", f"connection lost: {exc or 'closed by the server'}")
        self.streams.clear()

    def give_up(self) -> None:
        """Close a connection that was never ready."""
        self.ready.cancel()
        if self.transport is not None:
            self.transport.abort()

    def call(self, head: bytes, message: bytes) -> tuple[int, asyncio.Future[bytes]]:
        """Send a request with these encoded headers; the number of its stream, and its answer."""
        number = self._next
        self._next += 2
        if self._next > LAST_STREAM:
            self.usable = False
        stream = Stream(asyncio.get_running_loop().create_future(), self._stream_window)
        self.streams[number] = stream
        body = struct.pack(">BI", 0, len(message)) + message
        begin = frame(HEADERS, END_HEADERS, number, head)
        if len(body) <= min(self._frame, self._window, stream.window):
            self._window -= len(body)
            stream.window -= len(body)
            self._write(begin + frame(DATA, END_STREAM, number, body))
        else:
            stream.unsent = memoryview(body)
            self._write(begin)
            self._send_more(number, stream)
        return number, stream.answer

    def cancel(self, number: int) -> None:
        """Give a call up; the server is told."""
        if self.streams.pop(number, None) is not None and not self.transport.is_closing():
            self._write(frame(RST_STREAM, 0, number, struct.pack(">I", CANCEL)))

    def _write(self, data: bytes) -> None:
        """Send it soon, with all that other calls write now: after a batch many requests follow."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        data, self._out = b"".join(self._out), []
        if not self.transport.is_closing():
            self.transport.write(data)

    def _send_more(self, number: int, stream: Stream) -> None:
        """Send as much of a request as the windows allow."""
        while stream.unsent:
            size = min(len(stream.unsent), self._frame, self._window, stream.window)
            if size <= 0:
                return
            part, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._window -= size
            stream.window -= size
            self._write(frame(DATA, 0 if stream.unsent else END_STREAM, number, bytes(part)))

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._lacking:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        start, total = 0, len(data)
        try:
            while total - start >= 9:
                high, low, kind, flags, number = FRAME_HEAD.unpack_from(data, start)
                end = start + 9 + (high << 8 | low)
                if end > total:
                    break
                self._take(kind, flags, number & LARGEST_WINDOW, data[start + 9 : end])
                start = end
        except (hpack.HPACKError, struct.error, IndexError, ValueError) as error:
            self._broken(f"the server's HTTP/2 is not understood: {error}")
            return
        if start < total:
            self._lacking = end - start if total - start >= 9 else 9
            self._buffer += data[start:]

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            self._take_data(flags, number, payload)
        elif kind in (HEADERS, CONTINUATION):
            if kind == HEADERS:
                payload = unpadded(flags, payload)
                self._ends = bool(flags & END_STREAM)
                self._block = bytearray(payload[5:] if flags & PRIORITY else payload)
            else:
                self._block += payload
            if flags & END_HEADERS:
                self._take_headers(number, bytes(self._block))
        elif kind == SETTINGS and not flags & ACK:
            self._take_settings(payload)
        elif kind == PING and not flags & ACK:
            self._write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            self._take_window(number, struct.unpack(">I", payload)[0] & LARGEST_WINDOW)
        elif kind == RST_STREAM and (stream := self.streams.pop(number, None)):
            code = struct.unpack(">I", payload)[0]
            fail(stream, RESET.get(code, "INTERNAL"), f"the server reset the call (HTTP/2 error {code})")
        elif kind == GOAWAY:
            self._go_away(struct.unpack(">I", payload[:4])[0] & LARGEST_WINDOW)

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        self._taken += len(payload)
        if self._taken >= REFRESH:
            self._write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._taken)))
            self._taken = 0
        stream = self.streams.get(number)
        if stream is not None:
            stream.parts.append(unpadded(flags, payload))
            if flags & END_STREAM:
                del self.streams[number]
                fail(stream, "UNKNOWN", "an answer without a status")

    def _take_headers(self, number: int, block: bytes) -> None:
        """Headers of an answer, or those after it. Without a table equal blocks are equal headers."""
        headers = self._decoded.get(block)
        if headers is None:
            headers = dict(self._decoder.decode(block))
            if len(self._decoded) < 1000:
                self._decoded[block] = headers
        stream = self.streams.get(number)
        if stream is None:
            return
        stream.status = headers.get(":status", stream.status)
        if not self._ends:
            return
        del self.streams[number]
        code = headers.get("grpc-status")
        if code == "0":
            finish(stream)
        elif code is not None and code.isdigit():
            status = CODES[int(code)] if int(code) < len(CODES) else "UNKNOWN"
            fail(stream, status, urllib.parse.unquote(headers.get("grpc-message", ""), errors="replace"))
        else:
            fail(stream, HTTP.get(stream.status, "UNKNOWN"), f"HTTP status {stream.status}")

    def _take_settings(self, payload: bytes) -> None:
        for setting, value in struct.iter_unpack(">HI", payload):
            if setting == WINDOW:
                for stream in self.streams.values():
                    stream.window += value - self._stream_window
                self._stream_window = value
            elif setting == FRAME:
                self._frame = value
            elif setting == MOST_STREAMS:
                self.most_streams = value
        self._write(frame(SETTINGS, ACK, 0))
        if not self.ready.done():
            self.ready.set_result(None)
        self._send_all()

    def _take_window(self, number: int, size: int) -> None:
        if number == 0:
            self._window += size
            self._send_all()
        elif stream := self.streams.get(number):
            stream.window += size
            self._send_more(number, stream)

    def _send_all(self) -> None:
        for number, stream in list(self.streams.items()):
            if stream.unsent:
                self._send_more(number, stream)

    def _go_away(self, last: int) -> None:
        """The server takes no more calls here; those up to ``last`` are still answered."""
        self.usable = False
        for number in [number for number in self.streams if number > last]:
            fail(self.streams.pop(number), "UNAVAILABLE", "connection lost: the server is stopping")
        if not self.streams:
            self.transport.close()

    def _broken(self, message: str) -> None:
        self.usable = False
        for stream in self.streams.values():
            fail(stream, "INTERNAL", message)
        self.streams.clear()
        self.transport.abort()


class Channel:
    """Calls to one server (``host:port``, ``grpcs://host:port`` for TLS), over one connection or more."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix(TLS).rpartition(":")
        self.port = int(port)
        self._tls: ssl.SSLContext | None = None
        if url.startswith(TLS):
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["h2"])
        self._connections: list[Connection] = []
        self._connecting = asyncio.Lock()
        self._heads: dict[str, bytes] = {}

    async def call(
        self, path: str, message: bytes, timeout: float, metadata: Iterable[tuple[str, str]] = ()
    ) -> bytes:
        """The answer's message. Raises ``CallFailed``. Cancelled, the server is told."""
        connection = await self.connect()
        head = self._heads.get(path) or self._head(path)
        for name, value in (("grpc-timeout", f"{max(1, int(timeout * 1000))}m"), *metadata):
            head += literal(name, value)
        number, answer = connection.call(head, message)
        late = asyncio.get_running_loop().call_later(timeout, expire, answer, timeout)
        try:
            return await answer
        finally:
            late.cancel()
            connection.cancel(number)

    async def connect(self) -> Connection:
        """A connection that takes a call. Raises ``CallFailed``."""
        return self._free() or await self._connected()

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.transport.close()

    def _free(self) -> Connection | None:
        for connection in self._connections:
            if connection.usable and len(connection.streams) < connection.most_streams:
                return connection
        return None

    async def _connected(self) -> Connection:
        """A new connection, unless another call has made one meanwhile. Raises ``CallFailed``."""
        async with self._connecting:
            if other := self._free():
                return other
            self._connections = [each for each in self._connections if each.usable or each.streams]
            loop = asyncio.get_running_loop()
            host = self.host.strip("[]")
            connection = Connection()
            try:
                opening = loop.create_connection(lambda: connection, host, self.port, ssl=self._tls)
                await asyncio.wait_for(opening, CONNECT)
                await asyncio.wait_for(asyncio.shield(connection.ready), CONNECT)
            except (OSError, asyncio.TimeoutError) as error:
                connection.give_up()
                words = str(error) or f"no connection within {CONNECT:g} s"
                if connection.transport is not None:  # somebody listens, who does not speak HTTP/2
                    words += ": is this the gRPC port (8001)?"
                raise CallFailed("UNAVAILABLE", f"no connection to {host}:{self.port}: {words}") from None
            self._connections.append(connection)
            return connection

    def _head(self, path: str) -> bytes:
        """Headers of all calls of a path, encoded: POST is 3 of HPACK's static table, http 6, https 7."""
        head = b"\x83" + (b"\x87" if self._tls else b"\x86") + literal(":path", path)
        head += literal(":authority", f"{self.host}:{self.port}") + literal("te", "trailers")
        head += literal("content-type", "application/grpc") + literal("user-agent", "trb-gateway")
        self._heads[path] = head
        return head


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header by HPACK, not for its table, without Huffman's code."""
    return b"\x00" + sized(name.encode()) + sized(value.encode("latin-1", "replace"))


def sized(text: bytes) -> bytes:
    """A string after its length, an integer with a prefix of seven bits (RFC 7541, 5.1)."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    head, size = bytearray((127,)), size - 127
    while size >= 128:
        head.append(size % 128 + 128)
        size //= 128
    head.append(size)
    return bytes(head) + text


def unpadded(flags: int, payload: bytes) -> bytes:
    """The content of a frame that may be padded."""
    return payload[1 : len(payload) - payload[0]] if flags & PADDED else payload


def finish(stream: Stream) -> None:
    """Give the answer's only message."""
    body = stream.parts[0] if len(stream.parts) == 1 else b"".join(stream.parts)
    if len(body) < 5 or body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5:
        fail(stream, "INTERNAL", "an answer that is not one message")
    elif not stream.answer.done():
        stream.answer.set_result(body[5:])


def expire(answer: asyncio.Future[bytes], timeout: float) -> None:
    """Fail a call that has not been answered in time."""
    if not answer.done():
        answer.set_exception(CallFailed("DEADLINE_EXCEEDED", f"no answer within {timeout:g} s"))


def fail(stream: Stream, status: str, details: str) -> None:
    """Fail a call, unless it has been given up."""
    with suppress(asyncio.InvalidStateError):
        stream.answer.set_exception(CallFailed(status, details))
