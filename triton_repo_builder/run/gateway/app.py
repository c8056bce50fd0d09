"""The gateway as an ASGI application: from bytes to a route's handler and back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from triton_repo_builder.run.gateway import refusal, routes
from triton_repo_builder.run.gateway.call import JSON, Call, Reply, Route
from triton_repo_builder.run.gateway.gateway import Gateway
from triton_repo_builder.run.gateway.refusal import Refusal

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Any], Awaitable[None]]

MIB = 1 << 20
GONE = 499
"""Status in logs of a request whose client has gone (nginx's number)."""


class App:
    """Requests of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.routes = {(route.method, route.path): route for route in routes.ALL}
        self.any = [(route.path.rstrip("*"), route) for route in routes.ALL if route.path.endswith("*")]
        self.paths = {route.path for route in routes.ALL}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
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

    async def _request(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        id = headers.get(b"x-request-id", b"").decode("latin-1")[:128] or uuid.uuid4().hex
        writer: refusal.Writer = refusal.openai
        try:
            route, parameter = self.route(scope["method"], scope["path"])
            writer = route.errors
            body = await self._body(receive, headers) if scope["method"] == "POST" else b""
            call = Call(
                gateway=self.gateway,
                path=scope["path"],
                body=body,
                headers=headers,
                id=id,
                parameter=parameter,
                timeout=self.gateway.options.timeout,
            )
            answer = await self._handled(route, call, receive)
        except Refusal as error:
            answer = Reply(refusal.body(error, writer), JSON, error.status, error.headers)
        if answer.status != GONE:
            await _send(answer, id, send)

    def route(self, method: str, path: str) -> tuple[Route, str]:
        """The route, and what follows its path. Raises ``Refusal`` 404, 405."""
        route = self.routes.get((method, path))
        if route is not None:
            return route, ""
        for start, route in self.any:
            if path.startswith(start) and route.method == method and len(path) > len(start):
                return route, path[len(start) :]
        if path in self.paths:
            raise Refusal(405, f"{path} does not take {method}", code="method_not_allowed")
        raise Refusal(404, f"there is no {path:.80}; GET /openapi.json lists what there is", code="not_found")

    async def _body(self, receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
        most = self.gateway.options.most_bytes * MIB
        stated = headers.get(b"content-length", b"0")
        if stated.isdigit() and int(stated) > most:
            raise Refusal(413, f"the body has {int(stated)} bytes; at most {most} are allowed")
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(GONE, "the client has gone")
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise Refusal(413, f"the body has over {most} bytes, which is the most allowed")
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    @staticmethod
    async def _handled(route: Route, call: Call, receive: Receive) -> Reply:
        """The handler's answer; it is cancelled, down to Triton, when the client goes."""
        work: asyncio.Future[Reply] = asyncio.ensure_future(route.handler(call))

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            work.cancel()

        watch = asyncio.ensure_future(until_gone())
        try:
            return await work
        except asyncio.CancelledError:
            if watch.done():
                raise Refusal(GONE, "the client has gone") from None
            work.cancel()
            raise
        finally:
            watch.cancel()


async def _send(answer: Reply, id: str, send: Send) -> None:
    headers = [
        (b"content-type", answer.type),
        (b"content-length", str(len(answer.body)).encode()),
        (b"x-request-id", id.encode("latin-1", "replace")),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
