"""uvicorn's server and connections, with limits for slow clients and a stop that fails no request."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import time
import urllib.parse
from collections.abc import Callable
from types import FrameType
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from triton_repo_builder.run.gateway.app import LATE, WATCHERS
from triton_repo_builder.run.gateway.exchange import Exchange
from triton_repo_builder.run.gateway.gateway import Gateway

HEAD_SECONDS = 10.0
"""Time for the headers of a request, and before the first byte."""
HEAD_BYTES = 64 * 1024
"""Most bytes of headers."""
IDLE_SECONDS = 75
"""Time between two requests of a connection: longer than proxies keep theirs (nginx, ALB: 60 s)."""
TAKING_SECONDS = 30.0
TAKEN_BYTES = 64 * 1024
"""Bytes of an answer that a client must take in this time, or all that is left."""
LINGER_SECONDS = 2.0
"""Time for a request that is on its way when the server stops: its client has just connected, say."""


class Connection(HttpToolsProtocol):
    """A client's connection.

    uvicorn alone waits for ever for a request that trickles, and for a client that reads nothing.
    """

    seconds = 30.0
    """Time for the body of a request."""
    most = 4096
    """Most connections."""

    def connection_made(self, transport: Any) -> None:
        """A client has come."""
        super().connection_made(transport)
        self._written = 0
        self._head = 0
        self._inside = True
        self._in_body = False
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._answered = 0.0
        self._watchers: set[Callable[[], None]] = set()
        if len(self.connections) > self.most:
            self._refuse(503, "too many connections", b"retry-after: 1\r\n")
        else:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        for timer in (self._timer, self._writing, self._idle):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        for give_up in list(self._watchers):
            give_up()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request. One that is complete at once costs no timer."""
        if not self._in_body:
            self._head += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._inside:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif not self._in_body and self._head > HEAD_BYTES:
            self._refuse(431, "the headers are too large")
        elif self._timer is None:
            seconds = self.seconds if self._in_body else HEAD_SECONDS
            self._timer = self.loop.call_later(seconds, self._late)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._inside, self._in_body = True, False
        super().on_message_begin()
        self.scope[WATCHERS] = self._watchers  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        """The body follows: it has a time of its own."""
        self._in_body, self._head = True, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        version = self.parser.get_http_version()
        scope: Any = self.scope
        scope.update(
            method=self.parser.get_method().decode("ascii"),
            http_version=version,
            path=urllib.parse.unquote(path) if "%" in path else path,
            raw_path=url.path,
            query_string=url.query or b"",
        )
        before = self.cycle
        self.cycle = cycle = Exchange(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        cycle.write = self._write
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:  # sent before the answer to the one before
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._inside = self._in_body = False
        super().on_message_complete()

    def shutdown(self) -> None:
        """Close when nothing is on its way any more."""
        if not self._inside or self._in_body:
            super().shutdown()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(LINGER_SECONDS, self._late)

    def on_response_complete(self) -> None:
        """The application has written its answer; the client has to take it, and may send another request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._answered = self.loop.time()
            if self._idle is None:
                self._idle = self.loop.call_later(self.timeout_keep_alive, self._check_idle)
        self._watch_writing()

    def _check_idle(self) -> None:
        """Close a connection without requests. One timer for many: to set one is not cheap."""
        self._idle = None
        if self._inside or not self.cycle.response_complete:  # the next answer sets it again
            return
        left = self._answered + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle = self.loop.call_later(left, self._check_idle)
        else:
            self.transport.close()

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self.transport.write(data)

    def pause_writing(self) -> None:
        """The client does not read as fast as the application writes."""
        super().pause_writing()
        self._watch_writing()

    def _watch_writing(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        if self._writing is None and waiting:
            due = min(self._written, self._written - waiting + TAKEN_BYTES)
            self._writing = self.loop.call_later(TAKING_SECONDS, self._check_writing, due)

    def _check_writing(self, due: int) -> None:
        """Abort a connection whose client has not taken its bytes up to ``due``, of all that were written.

        Bytes that wait say nothing: they may be of the next answer.
        """
        self._writing = None
        if self._written - self.transport.get_write_buffer_size() < due:
            self.transport.abort()
        else:
            self._watch_writing()

    def _late(self) -> None:
        """The request has not come in time."""
        self._timer = None
        cycle = self.cycle
        if not self._in_body:
            if self._head:
                self._refuse(408, "the headers have not come in time")
            else:
                self.transport.close()
        elif cycle.response_complete:  # refused, and its body is still being sent
            self.transport.close()
        else:
            cycle.scope[LATE] = True  # type: ignore[literal-required]
            cycle.message_event.set()

    def _refuse(self, status: int, message: str, headers: bytes = b"") -> None:
        """Answer without the application, and close."""
        head = STATUS_LINE[status] + b"content-type: text/plain\r\nconnection: close\r\n" + headers
        body = message.encode()
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()


class Server(uvicorn.Server):
    """One listening socket in front of a gateway."""

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, listener: socket.socket, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.gateway = gateway
        self.listener = listener
        self.ready = ready
        self._until = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        gc.freeze()  # modules and tokenizers live as long as the process: no collection looks at them
        if not self.should_exit:
            self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first SIGTERM, stop at the second or at Ctrl-C, end at once at one more Ctrl-C."""
        if self.should_exit:
            self.force_exit = sig == signal.SIGINT
        elif sig == signal.SIGTERM and self.gateway.options.drain and not self.gateway.draining:
            self._until = time.monotonic() + self.gateway.options.drain
        else:
            self.should_exit = True
        self.gateway.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop; asked ten times a second."""
        stop = await super().on_tick(counter)
        return stop or bool(self._until and time.monotonic() >= self._until)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer what has been sent, close.

        Connections that wait to be accepted would be reset with the listening socket: they are taken first.
        """
        self.should_exit = True
        with self.listener.dup() as spare:
            for server in self.servers:
                server.close()
            await asyncio.sleep(0)
            spare.setblocking(False)
            await self._accept_all(spare)
        await super().shutdown(sockets)

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:  # none waits
                return
            await loop.connect_accepted_socket(self._connection, accepted)

    def _connection(self) -> Connection:
        return Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
