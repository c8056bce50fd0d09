"""One request of a connection and its answer, written in one piece."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from triton_repo_builder.run.gateway.app import CLOSE
from triton_repo_builder.run.gateway.refusal import Headers

CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that no value of a header may have (RFC 9110, 5.5)."""


class Exchange(RequestResponseCycle):
    """A request and its answer, whose head and body are written at once.

    uvicorn writes one after the other: two system calls, and a client that wakes twice.
    """

    write: Callable[[bytes], None]
    _head = b""

    async def send(self, message: Any) -> None:
        """Take the head of the answer, or its body or a part of it; its length is in the head."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self.response_started = True
            self.waiting_for_100_continue = False
            self._head = self._start(message["status"], message["headers"])
            return
        body = b"" if self.scope["method"] == "HEAD" else message["body"]
        self.write(self._head + body)
        self._head = b""
        if not message.get("more_body"):
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _start(self, status: int, headers: Headers) -> bytes:
        """The head of an answer. Raises RuntimeError for a value that would begin another header."""
        if CONTROLS.search(b"".join([value for _, value in headers])):
            raise RuntimeError("a header's value has a control character")
        if CLOSE in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers = [*headers, CLOSE]
        lines = [b"%b: %b\r\n" % header for header in headers]
        return b"".join((STATUS_LINE[status], *lines, b"\r\n"))
