"""The gateway's gRPC calls, against a server of gRPC's own library."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from triton_repo_builder.run.gateway.http2 import CallFailed, Channel, literal

ECHO = "/test.Service/Echo"
GONE: list[str] = []


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Echo, and whatever else a test asks for by the message."""

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.answer) if details.method.endswith("Echo") else None

    def answer(self, request: bytes, context: Any) -> bytes:
        if request.startswith(b"fail "):
            code, words = request[5:].decode().split(" ", 1)
            context.abort(getattr(grpc.StatusCode, code), words)
        if request.startswith(b"sleep "):
            gone = threading.Event()
            context.add_callback(gone.set)
            if gone.wait(float(request[6:])):
                GONE.append(request.decode())
        if request == b"metadata":
            return repr(dict(context.invocation_metadata())).encode()
        if request.startswith(b"size "):
            return bytes(int(request[5:]))
        return request


@contextmanager
def served(port: int = 0, host: str = "127.0.0.1", **options: int) -> Iterator[tuple[str, Any]]:
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    named = [(f"grpc.{name}", value) for name, value in options.items()]
    server = grpc.server(
        futures.ThreadPoolExecutor(32),
        handlers=[Handler()],
        options=[*sizes, *named, ("grpc.so_reuseport", 0)],
    )
    port = server.add_insecure_port(f"{host}:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}", server
    finally:
        server.stop(0).wait()


def ask(url: str, work: Callable[[Channel], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        channel = Channel(url)
        try:
            return await work(channel)
        finally:
            await channel.close()

    return asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_384, 65_535, 65_536, 20_000_000])
def test_messages_of_any_size_come_back(size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with served() as (url, _):
        assert ask(url, lambda channel: channel.call(ECHO, message, 30)) == message


def test_many_calls_at_once_share_a_connection_and_keep_their_answers() -> None:
    messages = [f"{number} ".encode() * (number % 700) for number in range(900)]
    # gRPC's server refuses some of over 1,000 calls that wait.

    async def work(channel: Channel) -> Any:
        answers = await asyncio.gather(*(channel.call(ECHO, each, 60) for each in messages))
        return answers, len(channel._connections)

    with served() as (url, _):
        answers, connections = ask(url, work)
    assert answers == messages
    assert connections == 1


def test_more_calls_than_a_connection_takes_get_another() -> None:
    async def work(channel: Channel) -> Any:
        await channel.call(ECHO, b"first", 30)  # the server has stated its limit
        answers = await asyncio.gather(*(channel.call(ECHO, b"sleep 0.2", 30) for _ in range(10)))
        return answers, len(channel._connections)

    with served(max_concurrent_streams=4) as (url, _):
        answers, connections = ask(url, work)
    assert answers == [b"sleep 0.2"] * 10
    assert connections == 3


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "INTERNAL"])
def test_a_refusal_has_its_status_and_words(code: str) -> None:
    words = "größer: 100 % of\n'it'"
    with served() as (url, _), pytest.raises(CallFailed) as refused:
        ask(url, lambda channel: channel.call(ECHO, f"fail {code} {words}".encode(), 30))
    assert (refused.value.status, refused.value.details) == (code, words)


def test_an_unknown_method() -> None:
    with served() as (url, _), pytest.raises(CallFailed) as refused:
        ask(url, lambda channel: channel.call("/test.Service/Other", b"", 30))
    assert refused.value.status == "UNIMPLEMENTED"


def test_metadata_and_deadline_are_sent() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with served() as (url, _):
        sent = ask(url, lambda channel: channel.call(ECHO, b"metadata", 30, (("traceparent", trace),)))
    assert f"'traceparent': '{trace}'" in sent.decode()


def test_a_late_answer_is_a_failure_and_the_server_is_told() -> None:
    GONE.clear()
    with served() as (url, _):
        with pytest.raises(CallFailed) as refused:
            ask(url, lambda channel: channel.call(ECHO, b"sleep 20", 0.2))
        assert refused.value.status == "DEADLINE_EXCEEDED"
        _until(lambda: GONE == ["sleep 20"])


def test_a_cancelled_call_is_cancelled_at_the_server_and_the_next_is_answered() -> None:
    GONE.clear()

    async def work(channel: Channel) -> Any:
        call = asyncio.ensure_future(channel.call(ECHO, b"sleep 21", 30))
        await asyncio.sleep(0.2)
        call.cancel()
        return await channel.call(ECHO, b"next", 30)

    with served() as (url, _):
        assert ask(url, work) == b"next"
        _until(lambda: GONE == ["sleep 21"])


def test_a_server_that_is_started_again_is_connected_to_again() -> None:
    async def work(channel: Channel) -> Any:
        statuses = []
        with served(port) as (_, server):
            assert await channel.call(ECHO, b"one", 30) == b"one"
            call = asyncio.ensure_future(channel.call(ECHO, b"sleep 22", 30))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.stop(0).wait)
            statuses += [error.status for error in await asyncio.gather(call, return_exceptions=True)]  # type: ignore[union-attr]
        try:
            await channel.call(ECHO, b"two", 30)
        except CallFailed as error:
            statuses.append(error.status)
        with served(port):
            assert await channel.call(ECHO, b"three", 30) == b"three"
        return statuses

    with socket.create_server(("127.0.0.1", 0)) as spare:
        port = spare.getsockname()[1]
    first, second = ask(f"127.0.0.1:{port}", work)
    assert first in ("UNAVAILABLE", "CANCELLED")
    assert second == "UNAVAILABLE"


def test_a_server_that_ends_old_connections_fails_no_call() -> None:
    async def work(channel: Channel) -> Any:
        until = time.monotonic() + 3
        count = 0
        while time.monotonic() < until:
            await asyncio.gather(*(channel.call(ECHO, b"x" * 1000, 30) for _ in range(20)))
            count += 20
        return count

    with served(max_connection_age_ms=300, max_connection_age_grace_ms=2000) as (url, _):
        assert ask(url, work) > 100


def test_what_is_no_grpc_server_is_a_failure() -> None:
    def talk(listener: socket.socket) -> None:
        for _ in range(2):
            client, _ = listener.accept()
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 300)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=talk, args=(listener,), daemon=True).start()
        with pytest.raises(CallFailed) as refused:
            ask(f"127.0.0.1:{listener.getsockname()[1]}", lambda channel: channel.call(ECHO, b"", 5))
    assert refused.value.status in ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED")


def test_a_server_that_hangs_up_as_tritons_http_port_does_may_be_the_wrong_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        with pytest.raises(CallFailed) as refused:
            ask(f"127.0.0.1:{listener.getsockname()[1]}", lambda channel: channel.call(ECHO, b"", 5))
    assert refused.value.status == "UNAVAILABLE"
    assert refused.value.details.endswith("is this the gRPC port (8001)?")
    with pytest.raises(CallFailed) as refused:
        ask("127.0.0.1:1", lambda channel: channel.call(ECHO, b"", 5))
    assert "8001" not in refused.value.details


def test_long_header_values_are_encoded_by_their_length() -> None:
    import hpack

    values = {"a": "", "b": "x" * 126, "c": "y" * 127, "d": "z" * 5000}
    block = b"".join(literal(name, value) for name, value in values.items())
    assert dict(hpack.Decoder().decode(block)) == values


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert true()
