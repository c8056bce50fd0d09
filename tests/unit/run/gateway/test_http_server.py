"""Connections of slow and broken clients, and the stop, on a real socket of loopback."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from tests.unit.run.gateway.test_app import FakeTriton, gateway
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.gateway import http_server, server
from triton_repo_builder.run.gateway.app import App
from triton_repo_builder.run.gateway.gateway import Gateway
from triton_repo_builder.run.gateway.http_server import Connection, Server
from triton_repo_builder.run.gateway.refusal import Refusal

BODY = b'{"input": "hello"}'
REQUEST = (
    b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


class Quiet(FakeTriton):
    """Answers without a channel."""

    def open(self) -> None: ...

    async def close(self) -> None: ...

    async def call(self, name: str, /, timeout: float, **fields: Any) -> Any:
        raise Refusal(503, "no server")


@contextmanager
def running(gate: Gateway, **options: Any) -> Iterator[tuple[int, Server]]:
    """Port of a server in a thread of this process."""
    gate.triton = Quiet()
    listener, url = server.listening(server.Listening(port=0, triton="fake"))
    ready = threading.Event()
    settings = {"timeout_keep_alive": 75, "timeout_graceful_shutdown": 5, **options}
    config = uvicorn.Config(
        App(gate), loop="uvloop", http=Connection, ws="none", lifespan="on", log_config=None, **settings
    )
    instance = Server(config, gate, listener, ready.set)
    thread = threading.Thread(target=instance.run, args=([listener],))
    thread.start()
    assert ready.wait(10)
    try:
        yield int(url.rpartition(":")[2]), instance
    finally:
        instance.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def answer(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def status(client: socket.socket) -> int:
    return int(client.recv(65536).split()[1])


def is_right(port: int) -> bool:
    with connect(port) as client:
        client.sendall(REQUEST)
        return b'"embedding":[5.0]' in client.recv(65536)


def test_headers_that_trickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)
    with running(gateway()) as (port, _), connect(port) as slow, connect(port) as silent:
        begun = time.monotonic()
        slow.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost")
        assert answer(slow).startswith(b"HTTP/1.1 408")
        assert answer(silent) == b""
        assert time.monotonic() - begun < 5
        assert is_right(port)


def test_a_second_request_whose_headers_trickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)
    with running(gateway()) as (port, _), connect(port) as slow:
        slow.sendall(REQUEST)
        assert status(slow) == 200
        time.sleep(0.5)  # between requests a connection may be idle for longer
        slow.sendall(REQUEST[:20])
        assert answer(slow).startswith(b"HTTP/1.1 408")


def test_a_body_that_trickles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "seconds", 0.4)
    gate = gateway()
    with running(gate) as (port, _), connect(port) as slow:
        for part in (REQUEST[:-5], REQUEST[-5:-3]):
            slow.sendall(part)
            time.sleep(0.15)
        said = answer(slow)
        assert said.startswith(b"HTTP/1.1 408")
        assert b'"error"' in said
        assert is_right(port)
    assert gate.admission.bytes == gate.admission.requests == 0


def test_a_refused_body_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "seconds", 0.4)
    with running(gateway(most_bytes=1)) as (port, _), connect(port) as flood:
        flood.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n")
        assert answer(flood).startswith(b"HTTP/1.1 413")
        assert is_right(port)


def test_headers_without_end() -> None:
    with running(gateway()) as (port, _), connect(port) as flood:
        flood.sendall(b"GET / HTTP/1.1\r\nx: " + b"a" * (http_server.HEAD_BYTES + 1))
        assert answer(flood).startswith(b"HTTP/1.1 431")
        assert is_right(port)


def test_more_connections_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "most", 2)
    with running(gateway()) as (port, _), connect(port) as first, connect(port):
        first.sendall(REQUEST)
        assert status(first) == 200
        with connect(port) as third:
            assert answer(third).startswith(b"HTTP/1.1 503")
        first.sendall(REQUEST)
        assert status(first) == 200


def test_a_half_closed_connection_is_over() -> None:
    gate = gateway()
    with running(gate) as (port, _):
        for sent in (REQUEST, REQUEST[:-3], REQUEST[:30], b""):
            with connect(port) as half:
                half.sendall(sent)
                half.shutdown(socket.SHUT_WR)
                answer(half)
        assert is_right(port)
    assert gate.admission.bytes == gate.admission.requests == 0


@pytest.mark.parametrize("requests", [1, 2])
def test_a_client_that_goes_cancels_the_call(requests: int) -> None:
    gate = gateway()
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with running(gate) as (port, _):
        triton: Any = gate.triton
        triton.before = wait
        with connect(port) as client:
            client.sendall(REQUEST * requests)  # a second one waits for the first
            assert started.wait(10)
        assert cancelled.wait(10)
        triton.before = None
        assert is_right(port)
        assert len(triton.calls) == 2
    assert gate.admission.bytes == gate.admission.requests == gate.admission.rows == 0


def test_what_is_no_http() -> None:
    with running(gateway()) as (port, _), connect(port) as strange:
        strange.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert answer(strange).startswith(b"HTTP/1.1 400")
        assert is_right(port)


def test_a_client_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TAKING_SECONDS", 0.3)
    gate = gateway(most_items=200_000)
    body = b'{"input": [%s]}' % b",".join([b'"%s"' % (b"a" * 50)] * 150_000)
    request = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with running(gate) as (port, _), connect(port) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(request)
        deadline = time.monotonic() + 60
        while gate.admission.requests == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        while gate.admission.requests and time.monotonic() < deadline:
            time.sleep(0.05)
        assert gate.admission.requests == 0
        assert is_right(port)


def test_a_client_that_takes_one_large_answer_after_another_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bytes always wait for it, but never the same ones."""
    monkeypatch.setattr(http_server, "TAKING_SECONDS", 0.05)
    monkeypatch.setattr(http_server, "TAKEN_BYTES", 1 << 30)
    body = b'{"input": [%s]}' % b",".join([b'"a"'] * 4000)
    request = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with running(gateway(most_items=5000)) as (port, _), connect(port) as busy:
        stream = busy.makefile("rb")
        # The next request is sent before the last answer is taken: the server always has one to send.
        busy.sendall(request)
        for _ in range(40):
            busy.sendall(request)
            assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
            length = 0
            while (line := stream.readline()) != b"\r\n":
                name, _, value = line.partition(b": ")
                length = int(value) if name.lower() == b"content-length" else length
            assert len(stream.read(length)) == length


def test_sigterm_drains_first_and_then_stops() -> None:
    gate = gateway(drain=1.0)
    with running(gate) as (port, instance):
        kept = connect(port)
        kept.sendall(REQUEST)
        assert status(kept) == 200
        instance.handle_exit(signal.SIGTERM, None)
        assert gate.draining
        assert not instance.should_exit
        kept.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        said = answer(kept)
        assert said.startswith(b"HTTP/1.1 503")
        assert b"connection: close" in said
        assert is_right(port)
        deadline = time.monotonic() + 10
        while not instance.should_exit and time.monotonic() < deadline:
            time.sleep(0.05)
        assert instance.should_exit
        assert not instance.force_exit


@pytest.mark.parametrize(
    ("options", "signals", "ends"),
    [
        ({}, [signal.SIGINT], (True, False)),
        ({}, [signal.SIGTERM], (False, False)),
        ({"drain": 0.0}, [signal.SIGTERM], (True, False)),
        ({}, [signal.SIGTERM, signal.SIGTERM], (True, False)),
        ({}, [signal.SIGTERM, signal.SIGINT, signal.SIGINT], (True, True)),
    ],
)
def test_signals(options: dict[str, Any], signals: list[int], ends: tuple[bool, bool]) -> None:
    gate = gateway(**options)
    instance = Server(uvicorn.Config(App(gate)), gate, socket.socket(), lambda: None)
    for number in signals:
        instance.handle_exit(number, None)
    assert (instance.should_exit, instance.force_exit) == ends
    assert gate.draining
    assert instance._captured_signals == []
    instance.listener.close()


def test_connections_that_wait_to_be_accepted_are_answered() -> None:
    gate = gateway()

    async def slow() -> None:
        await asyncio.sleep(0.05)

    with running(gate) as (port, instance):
        gate.triton.before = slow  # type: ignore[attr-defined]
        answers: list[bytes] = []

        def ask() -> None:
            while True:
                try:
                    client = connect(port)
                except ConnectionRefusedError:
                    return
                with client:
                    client.sendall(REQUEST)
                    answers.append(answer_of_one(client))

        clients = [threading.Thread(target=ask) for _ in range(16)]
        for thread in clients:
            thread.start()
        time.sleep(0.5)
        instance.handle_exit(signal.SIGINT, None)
        for thread in clients:
            thread.join(20)
    assert len(answers) > 50
    assert [text for text in answers if not text.startswith(b"HTTP/1.1 200")] == []


@pytest.mark.parametrize("before", [0, 1, len(REQUEST) - 30, len(REQUEST) - 3])
def test_a_request_on_its_way_is_answered_when_the_server_stops(before: int) -> None:
    with running(gateway()) as (port, instance), connect(port) as used, connect(port) as fresh:
        used.sendall(REQUEST)
        assert status(used) == 200
        for client in (used, fresh):
            client.sendall(REQUEST[:before])
        time.sleep(0.2)
        instance.handle_exit(signal.SIGINT, None)
        time.sleep(0.5)
        if before:
            used.sendall(REQUEST[before:])
            assert answer(used).startswith(b"HTTP/1.1 200")
        else:
            assert answer(used) == b""  # it was idle
        fresh.sendall(REQUEST[before:])
        assert answer(fresh).startswith(b"HTTP/1.1 200")


def test_a_silent_connection_does_not_hold_up_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LINGER_SECONDS", 0.2)
    with running(gateway()) as (port, instance), connect(port) as silent:
        time.sleep(0.1)
        begun = time.monotonic()
        instance.handle_exit(signal.SIGINT, None)
        assert answer(silent) == b""
        assert time.monotonic() - begun < 3


def answer_of_one(client: socket.socket) -> bytes:
    try:
        return client.recv(65536)
    except OSError as error:
        return str(error).encode()


def test_only_loopback_is_private() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert server.is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "gpu-7"):
        assert not server.is_loopback(host)


def test_a_port_that_is_taken() -> None:
    first, url = server.listening(server.Listening(port=0, triton="fake"))
    with first, pytest.raises(TrbError) as error:
        server.listening(server.Listening(port=int(url.rpartition(":")[2]), triton="fake"))
    assert error.value.code is Code.PORT_BUSY


def test_connections_leave_room_for_other_files() -> None:
    assert 64 <= server.most_connections() <= server.MOST_FILES
