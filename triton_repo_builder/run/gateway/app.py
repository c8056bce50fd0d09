"""The gateway as an ASGI application: from bytes to a route's handler and back."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from triton_repo_builder.run.gateway import access as accesses
from triton_repo_builder.run.gateway import metrics, refusal, routes
from triton_repo_builder.run.gateway.access import GONE, HEALTH, Access
from triton_repo_builder.run.gateway.call import JSON, TEXT, Call, Reply, Route, after_writes
from triton_repo_builder.run.gateway.gateway import Gateway
from triton_repo_builder.run.gateway.options import MIB
from triton_repo_builder.run.gateway.refusal import Headers, Refusal
from triton_repo_builder.run.gateway.triton import Metadata

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Any], Awaitable[None]]

LARGE = MIB
"""Bytes of an answer whose client is waited for: until then it counts as a request under way."""
BODILESS = (204, 304)
LATE = "trb.late"
"""Key of the scope that the server sets when a body has not come in time (``http_server.py``)."""
WATCHERS = "trb.watchers"
"""Key of the scope for functions that the server calls when the client has gone; other servers have none."""
CLOSE = (b"connection", b"close")


class NotAllowed(Refusal):
    """A path that takes another method."""

    def __init__(self, path: str, method: str, takes: str) -> None:
        super().__init__(405, f"{path} takes {takes}, not {method}", code="method_not_allowed")
        self.takes = takes

    @property
    def headers(self) -> Headers:
        """The method that it takes (RFC 9110)."""
        return [(b"allow", self.takes.encode())]


class App:
    """Requests of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.routes = {(route.method, route.path): route for route in routes.ALL}
        self.any = [(route.path.rstrip("*"), route) for route in routes.ALL if route.path.endswith("*")]
        self.paths = {route.path: route.method for route in routes.ALL}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.gateway.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.gateway.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _request(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request, from its first byte to its last, and its traces in metrics and logs."""
        headers = dict(scope["headers"])
        access = Access(accesses.request_id(headers))
        tracer, method = self.gateway.tracer, scope["method"]
        if tracer is not None and method == "POST":
            access.span = tracer.begin(headers)
        try:
            answer = await self._answer(scope, headers, access, receive)
            access.status = answer.status
            if answer.status != GONE:
                begun = time.perf_counter()
                extra = [(b"x-request-id", access.id.encode()), *self.gateway.cors.headers(headers)]
                if self.gateway.draining or answer.status in (408, 413):
                    extra.append(CLOSE)
                await _send(answer, extra, send)
                access.written = time.perf_counter() - begun
        except asyncio.CancelledError:
            access.status = GONE
            raise
        finally:
            self.gateway.admission.leave(access)
            after_writes(self._record, access, method)

    def _record(self, access: Access, method: str) -> None:
        """Traces of a request that is over, in metrics, log and spans."""
        metrics.count(access)
        self.gateway.log.request(access)
        if self.gateway.tracer is not None and access.span is not None:
            self.gateway.tracer.end(access.span, access, method)

    async def _answer(
        self, scope: Any, headers: dict[bytes, bytes], access: Access, receive: Receive
    ) -> Reply:
        """The answer of a route, or an error as the route's API writes it."""
        writer: refusal.Writer = refusal.openai
        try:
            method, path = scope["method"], scope["path"]
            if method == "OPTIONS" and b"access-control-request-method" in headers:
                return Reply(b"", TEXT, 204, self.gateway.cors.preflight(headers))
            if self.gateway.draining and path == HEALTH:
                access.path = HEALTH
                raise Refusal(503, "the gateway is stopping", code="stopping")
            route, parameter = self.route("GET" if method == "HEAD" else method, path)
            access.path, writer = route.path, route.errors
            if not route.open and self.gateway.keys is not None:
                access.owner = self.gateway.keys.owner(headers)
            body = b""
            if method == "POST":
                self.gateway.cors.check(headers)
                body = await self._body(scope, headers, access, receive)
            access.read = time.perf_counter() - access.started
            access.call = Call(
                gateway=self.gateway,
                path=path,
                body=body,
                headers=headers,
                id=access.id,
                metadata=self._metadata(headers, access),
                parameter=parameter,
                timeout=self.gateway.options.timeout,
            )
            return await self._handled(route, scope, access, receive)
        except Refusal as error:
            access.error, access.at = error.code, error.field
            return Reply(refusal.body(error, writer), JSON, error.status, error.headers)
        except Exception:
            self.gateway.log.warning(f"request {access.id}: {traceback.format_exc()}")
            fault = Refusal(500, f"a fault of the gateway; its log has more of request {access.id}")
            return Reply(refusal.body(fault, writer), JSON, 500)

    def _metadata(self, headers: dict[bytes, bytes], access: Access) -> Metadata:
        """The trace that Triton's spans belong to: the gateway's own span, or what the client has sent."""
        if self.gateway.tracer is None:
            return accesses.trace(headers)
        return access.span.metadata if access.span is not None else ()

    def route(self, method: str, path: str) -> tuple[Route, str]:
        """The route, and what follows its path. Raises ``Refusal`` 404, 405."""
        route = self.routes.get((method, path))
        if route is not None:
            return route, ""
        for start, route in self.any:
            if path.startswith(start) and route.method == method and len(path) > len(start):
                return route, path[len(start) :]
        if path in self.paths:
            raise NotAllowed(path, method, self.paths[path])
        raise Refusal(404, f"there is no {path:.80}; GET /openapi.json lists what there is", code="not_found")

    async def _body(self, scope: Any, headers: dict[bytes, bytes], access: Access, receive: Receive) -> bytes:
        """The body of a request. Raises ``Refusal``: 408 if it does not come in time, 413, 429, 499."""
        most = self.gateway.options.most_bytes * MIB
        stated = headers.get(b"content-length", b"0")
        if stated.isdigit() and int(stated) > most:
            raise Refusal(413, f"the body has {int(stated)} bytes; at most {most} are allowed")
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(GONE, "the client has gone")
            part = message.get("body", b"")
            if access.held + len(part) > most:
                raise Refusal(413, f"the body has over {most} bytes, which is the most allowed")
            self.gateway.admission.hold(access, len(part))
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if LATE in scope:
                seconds = self.gateway.options.timeout
                raise Refusal(408, f"the body has not come within {seconds:g} s", code="timeout")

    async def _handled(self, route: Route, scope: Any, access: Access, receive: Receive) -> Reply:
        """The handler's answer; it is cancelled, down to Triton, when the client goes."""
        call: Any = access.call
        if route.method != "POST":
            return await route.handler(call)
        if route.tasks and not self.gateway.ready and not self.gateway.catalogue.by_name:
            waiting = f"the inference server at {self.gateway.triton.url} is not ready yet"
            message = self.gateway.triton.trouble or waiting
            raise Refusal(503, message, code="unavailable", retry_after=1)
        task: Any = asyncio.current_task()
        lost = False

        def give_up() -> None:
            nonlocal lost
            lost = True
            task.cancel()

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            give_up()

        self.gateway.admission.enter(access)
        begun = time.perf_counter()
        # Our own server says when a client goes. A task that waits for it costs 0.1 ms of CPU a request.
        watchers: set[Any] | None = scope.get(WATCHERS)
        watch = asyncio.ensure_future(until_gone()) if watchers is None else None
        if watchers is not None:
            watchers.add(give_up)
        try:
            return await route.handler(call)
        except asyncio.CancelledError:
            if lost:
                raise Refusal(GONE, "the client has gone") from None
            raise
        finally:
            if watch is not None:
                watch.cancel()
            if watchers is not None:
                watchers.discard(give_up)
            access.handled = time.perf_counter() - begun


async def _send(answer: Reply, extra: Headers, send: Send) -> None:
    headers = [*answer.headers, *extra]
    if answer.status not in BODILESS:
        headers += (b"content-type", answer.type), (b"content-length", str(len(answer.body)).encode())
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if len(answer.body) > LARGE:
        # The server waits before the second message until the client has taken most of the first.
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "http.response.body", "body": answer.body})
