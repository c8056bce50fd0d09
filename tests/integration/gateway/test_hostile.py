"""Hostile and broken clients: the right status each time, bounded memory, and the next request right."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from tests.support import gateways, slow_embedder
from tests.support.serve_repository import free_port, until
from tests.support.servers import free
from tests.support.slow_embedder import embedding
from triton_repo_builder.run import serve
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = [pytest.mark.server, pytest.mark.gateway]
MIB = 1 << 20
PATH = "/v1/embeddings"
HEAD = "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = slow_embedder.write(tmp_path_factory.mktemp("hostile") / "repository", "slow", 0.2, rows=1)
    return slow_embedder.write(root, "quick")


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[serve.RunningServer]:
    with serve.start(repository, free()) as running:
        yield running


@pytest.fixture(scope="module")
def url(server: serve.RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tmp = tmp_path_factory.mktemp("hostile_gateway")
    with gateways.running(tmp, server.urls.grpc, "--deadline", "3", "--drain", "0") as address:
        yield address
        assert (tmp / "stderr").read_text() == "", "a hostile client may not fill the log"


@pytest.fixture(autouse=True)
def next_request_is_right(url: str) -> Iterator[None]:
    yield
    text = f"after {time.monotonic()}"
    answer = requests.post(url + PATH, json={"model": "quick", "input": [text]}, timeout=30)
    assert answer.json()["data"][0]["embedding"] == embedding(text)
    until(lambda: in_flight(url) == (0.0, 0.0, 0.0), 10)


def in_flight(url: str) -> tuple[float, ...]:
    """Requests, rows and bytes that the gateway counts as under way."""
    page = requests.get(f"{url}/metrics", timeout=30).text
    names = ("requests", "rows", "body_bytes")
    return tuple(float(page.partition(f"\ntrb_gateway_{name}_in_flight ")[2].split()[0]) for name in names)


def resident(url: str) -> float:
    """Bytes of memory of the gateway."""
    page = requests.get(f"{url}/metrics", timeout=30).text
    return float(page.partition("\nprocess_resident_memory_bytes ")[2].split()[0])


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def everything(client: socket.socket) -> bytes:
    parts = []
    with suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def send(url: str, body: bytes, **headers: str) -> requests.Response:
    headers = {"content-type": "application/json", **headers}
    return requests.post(url + PATH, data=body, headers=headers, timeout=60)


def test_bodies_of_64_megabytes(url: str) -> None:
    before = resident(url)

    def flood(_: int) -> bytes:
        with connect(url) as client:
            client.sendall(f"{HEAD}content-length: {64 * MIB}\r\n\r\n".encode())
            return client.recv(4096)

    with ThreadPoolExecutor(8) as pool:
        assert all(b" 413 " in said for said in pool.map(flood, range(32)))
    chunk = b"%x\r\n" % MIB + bytes(MIB) + b"\r\n"

    def stream(_: int) -> bytes:
        with connect(url) as client:
            with suppress(OSError):  # the gateway closes while we send
                client.sendall(f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode())
                for _ in range(64):
                    client.sendall(chunk)
            return everything(client)

    with ThreadPoolExecutor(8) as pool:
        assert all(b" 413 " in said for said in pool.map(stream, range(8)) if said)
    assert resident(url) - before < 600 * MIB


def test_bodies_that_are_held_back_have_a_bound(url: str) -> None:
    """Sixteen clients that send 15 MiB each and then wait: the memory is not theirs."""
    before = resident(url)
    clients = [connect(url) for _ in range(16)]
    head = f"{HEAD}content-length: {16 * MIB}\r\n\r\n".encode()

    def hold(client: socket.socket) -> None:
        with suppress(OSError):
            client.sendall(head + bytes(15 * MIB))

    try:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(hold, clients))
        assert in_flight(url)[2] <= 8 * 16 * MIB
        assert resident(url) - before < 600 * MIB
        statuses = [everything(client)[9:12] for client in clients]
        assert set(statuses) <= {b"408", b"429", b""}
        assert b"408" in statuses
        assert b"429" in statuses
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (json.dumps({"model": "quick", "input": ["x"] * 100_000}).encode(), 413),
        (json.dumps({"model": "quick", "input": ["x"] * 10_001}).encode(), 413),
        (b"[" * 1_000_000, 400),
        (b'{"input": ' + b"[" * 500 + b"]" * 500 + b"}", 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
        (b"", 400),
        (b"null", 400),
        (b'"text"', 400),
        (b"[1, 2]", 400),
        (b'{"model": "quick", "input": "x"', 400),
        (b'{"model": "quick", "input": "x"} {}', 400),
        (b"{'model': 'quick'}", 400),
        (b'{"model": "quick", "input": NaN}', 400),
        (b'{"model": "quick", "input": "\xff\xfe"}', 400),
        (b'{"model": "quick", "input": "\xed\xa0\x80"}', 400),
        (b'{"model": "quick", "input": "\\ud800"}', 400),
        (b'{"model": "quick", "input": "a\x00"}', 400),
        (b"\xff\xfe{\x00}\x00", 400),
        (b'{"model": "quick"}', 400),
        (b'{"model": "quick", "input": []}', 400),
        (b'{"model": "quick", "input": null}', 400),
        (b'{"model": "quick", "input": 5}', 400),
        (b'{"model": "quick", "input": {"a": 1}}', 400),
        (b'{"model": "quick", "input": ["a", 1]}', 400),
        (b'{"model": "quick", "input": ["a", null]}', 400),
        (b'{"model": "quick", "input": [[]]}', 400),
        (b'{"model": "quick", "input": [["a"]]}', 400),
        (b'{"model": "quick", "input": [true]}', 400),
        (b'{"model": "quick", "input": [-1]}', 400),
        (b'{"model": "quick", "input": [1e400]}', 400),
        (b'{"model": 5, "input": "x"}', 400),
        (b'{"model": ["quick"], "input": "x"}', 400),
        (b'{"model": "' + b"m" * 100_000 + b'", "input": "x"}', 404),
        (b'{"model": "../quick", "input": "x"}', 404),
        (b'{"model": "quick\\u0000", "input": "x"}', 404),
        (b'{"model": "quick", "input": "x", "encoding_format": 7}', 400),
        (b'{"model": "quick", "input": "x", "dimensions": "many"}', 400),
        (b'{"model": "quick", "input": "x", "dimensions": 99999999999999999999999}', 400),
    ],
)
def test_bodies_that_are_wrong(url: str, body: bytes, status: int) -> None:
    answer = send(url, body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert len(error["message"]) < 1000
    assert error["type"]


def test_a_list_of_a_million_token_ids_does_not_stop_the_others(url: str) -> None:
    body = json.dumps({"model": "quick", "input": list(range(1_000_000))}).encode()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(send, url, body)
        slowest = 0.0
        while not asked.done():
            begun = time.monotonic()
            assert requests.get(f"{url}/v1/models", timeout=30).status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
        assert asked.result().status_code == 400
    assert slowest < 2


def test_texts_of_any_characters_and_lengths(url: str) -> None:
    texts = ["", "\x00", "é" * 10_000, "👩‍👩‍👧", "a\u202eb", "x" * MIB, '"\\\n', " "]
    answer = requests.post(url + PATH, json={"model": "quick", "input": texts}, timeout=60)
    assert [row["embedding"] for row in answer.json()["data"]] == list(map(embedding, texts))


@pytest.mark.parametrize(
    "part",
    [
        "",
        "POST",
        HEAD,
        f"{HEAD}content-length: 100\r\n\r\n",
        f'{HEAD}content-length: 100\r\n\r\n{{"model": "quick"',
        f"{HEAD}transfer-encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_half_closed_connections(url: str, part: str) -> None:
    with connect(url) as client:
        client.sendall(part.encode())
        client.shutdown(socket.SHUT_WR)
        begun = time.monotonic()
        everything(client)
        assert time.monotonic() - begun < 2


def test_connections_that_are_reset_while_triton_works(url: str) -> None:
    body = b'{"model": "slow", "input": "x"}'
    for _ in range(20):
        client = connect(url)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(f"{HEAD}content-length: {len(body)}\r\n\r\n".encode() + body)
        client.close()


def test_slow_clients_do_not_hold_up_quick_ones(url: str) -> None:
    slow = [connect(url) for _ in range(100)]
    try:
        for number, client in enumerate(slow):
            client.sendall((HEAD if number % 2 else f"{HEAD}content-length: 10\r\n\r\n{{").encode())
        begun = time.monotonic()
        for number in range(20):
            answer = requests.post(url + PATH, json={"model": "quick", "input": f"{number}"}, timeout=30)
            assert answer.json()["data"][0]["embedding"] == embedding(f"{number}")
        assert time.monotonic() - begun < 5
        assert b" 408 " in everything(slow[0])  # its body has not come within the deadline
    finally:
        for client in slow:
            client.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /v1/embeddings HTTP/1.1\r\nhost: x\r\n\r\n", b"405"),
        ("DELETE /v1/models HTTP/1.1\r\nhost: x\r\n\r\n", b"405"),
        ("GET /%00/../../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
        ("GET /v1/models/%ff HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
        ("GET http://other/v1/models HTTP/1.1\r\nhost: x\r\n\r\n", b"200"),
        ("BREW / HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
        ("GET / HTTP/9.9\r\n\r\n", b"400"),
        (f"{HEAD}content-length: -1\r\n\r\n", b"400"),
        (f"{HEAD}content-length: 5\r\ncontent-length: 6\r\n\r\n", b"400"),
        (f"{HEAD}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n", b"400"),
        (f"{HEAD}transfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
def test_requests_that_are_wrong(url: str, head: str, status: bytes) -> None:
    with connect(url) as client:
        client.sendall(head.encode())
        assert client.recv(4096)[9:12] == status


def test_triton_may_end_in_the_middle_of_a_request(tmp_path: Path, repository: Path) -> None:
    port = free_port()
    options = replace(free("quick", "slow"), grpc_port=port)
    with (
        gateways.running(tmp_path, f"127.0.0.1:{port}", "--drain", "0") as url,
        ThreadPoolExecutor(8) as pool,
    ):
        with serve.start(repository, options) as running:
            until(lambda: send(url, b'{"model": "quick", "input": "x"}').status_code == 200)
            asked = [pool.submit(send, url, b'{"model": "slow", "input": "x"}') for _ in range(8)]
            time.sleep(0.5)
            assert running.pid is not None
            os.kill(running.pid, signal.SIGKILL)
            answers = [each.result() for each in asked]
            assert {answer.status_code for answer in answers} <= {200, 503}
            lost = [answer for answer in answers if answer.status_code == 503]
            assert lost
            assert all(answer.headers["retry-after"] == "1" for answer in lost)
        with serve.start(repository, options):
            until(lambda: send(url, b'{"model": "quick", "input": "x"}').status_code == 200)
            answer = send(url, b'{"model": "quick", "input": "x"}')
            assert answer.json()["data"][0]["embedding"] == embedding("x")


class Client:
    """A connection of a program: one request after the other, as bytes."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, texts: list[str]) -> Any:
        body = json.dumps({"model": "quick", "input": texts}).encode()
        self.writer.write(f"{HEAD}content-length: {len(body)}\r\n\r\n".encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
        answer = await self.reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200"), answer
        return json.loads(answer)["data"]


def mixed(port: int, requests: int, clients: int, seen: dict[str, list[float]]) -> None:
    """Send distinct texts from many clients, some of which give up in the middle, and keep the answers."""
    numbers = iter(range(requests))

    async def one(client: int) -> None:
        connection = Client(port)
        await connection.open()
        for number in numbers:
            texts = [f"client {client}, request {number}, text {row}" for row in range(1 + number % 3)]
            if number % 97 == 0:  # gives up: its answer must reach nobody
                abandoned = Client(port)
                await abandoned.open()
                asked = asyncio.ensure_future(abandoned.ask([f"abandoned {number}"]))
                await asyncio.sleep(0.0005)
                asked.cancel()
                abandoned.writer.close()
            for text, row in zip(texts, await connection.ask(texts), strict=True):
                seen[text] = row["embedding"]
        connection.writer.close()

    async def run() -> None:
        await asyncio.gather(*map(one, range(clients)))

    asyncio.run(run())


def check_unmixed(url: str, server: serve.RunningServer, requests: int) -> None:
    """Each answer is that of its text, as Triton gives it over gRPC."""
    seen: dict[str, list[float]] = {}
    mixed(int(url.rpartition(":")[2]), requests, 64, seen)
    assert len(seen) >= requests
    client = GrpcClient(server.urls.grpc, 60)
    texts = list(seen)
    for start in range(0, len(texts), 32):
        part = texts[start : start + 32]
        rows = np.array([[text.encode()] for text in part], dtype=object)
        expected = client.infer("quick", {"TEXT": rows})["embedding"].tolist()
        assert [seen[text] for text in part] == expected
    client.close()


def test_nothing_is_mixed_between_clients(url: str, server: serve.RunningServer) -> None:
    check_unmixed(url, server, 3_000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_mixed_in_a_hundred_thousand_requests(url: str, server: serve.RunningServer) -> None:
    before = resident(url)
    check_unmixed(url, server, 100_000)
    assert resident(url) - before < 100 * MIB
