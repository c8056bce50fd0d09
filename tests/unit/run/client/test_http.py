"""The two encodings, the one error, and the control of a server's repository."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import numpy as np
import pytest

from triton_repo_builder.base.dtypes import BY_WIRE
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import BROKEN, REFUSED, SILENT, Body, HttpClient, NoAnswer, RequestFailed
from triton_repo_builder.run.client.codec import decode, encode_binary, encode_json, wire_type
from triton_repo_builder.run.client.grpc import GrpcClient


@pytest.mark.parametrize("datatype", sorted(set(BY_WIRE) - {"FP16"}))
def test_json_is_what_curl_would_send(datatype: str) -> None:
    array = np.array([[b"1", b"0"]] if datatype == "BYTES" else [[1, 0]], dtype=BY_WIRE[datatype].numpy)
    body = encode_json({"X": array})
    assert body.headers == {"Content-Type": "application/json"}
    (tensor,) = json.loads(body.data)["inputs"]
    assert (tensor["name"], tensor["datatype"], tensor["shape"]) == ("X", datatype, [1, 2])
    answer = json.dumps({"outputs": [tensor]}).encode()
    got = decode(answer, len(answer))["X"]
    assert (got.tolist(), got.dtype) == (array.tolist(), array.dtype)


@pytest.mark.parametrize("datatype", sorted(BY_WIRE))
def test_binary_tensors_are_read_as_written(datatype: str) -> None:
    array = np.array([[b"\xff\x00", b""]] if datatype == "BYTES" else [[1, 0]], dtype=BY_WIRE[datatype].numpy)
    second = np.arange(3, dtype=np.float16)
    body = encode_binary({"X": array, "Z": second})
    length = int(body.headers["Inference-Header-Content-Length"])
    header = json.loads(body.data[:length])
    answer = json.dumps({"outputs": header["inputs"]}).encode()
    got = decode(answer + body.data[length:], len(answer))
    assert (got["X"].tolist(), got["X"].dtype) == (array.tolist(), array.dtype)
    assert (got["Z"].tolist(), got["Z"].dtype) == (second.tolist(), second.dtype)


@pytest.mark.parametrize(
    "output",
    [
        {"name": "Y", "datatype": "FP32", "shape": [2], "data": [1.0]},
        {"name": "Y", "datatype": "NEW", "shape": [1], "data": [1.0]},
        {"name": "Y", "datatype": "FP32", "shape": [1]},
        {"name": "Y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
    ],
)
def test_an_answer_that_contradicts_itself_is_broken(output: dict[str, Any]) -> None:
    data = json.dumps({"outputs": [output]}).encode()
    with pytest.raises(RequestFailed, match="output 'Y' cannot be decoded") as problem:
        decode(data, len(data))
    assert problem.value.kind == BROKEN


class Answering(BaseHTTPRequestHandler):
    """Answers every request with what the test put here."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"{}")

    by_path: ClassVar[dict[str, tuple[int, Any]]] = {}
    """JSON answers to POST; 404 for every other path."""

    def do_GET(self) -> None:
        """Send it."""
        self.respond(*self.answer)

    def do_POST(self) -> None:
        """Send what belongs to the path."""
        self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json"
        status, document = self.by_path.get(self.path, (404, {"error": "no such thing"}))
        self.respond(status, json.dumps(document).encode())

    def respond(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "data", "kind", "message"),
    [
        (400, b'{"error":"no"}', REFUSED, "400: no"),
        (404, b"<html>", REFUSED, "404: <html>"),
        (404, b"404 page not found\n", REFUSED, "404: page not found"),
        (502, b"<html>\r\n<h1>Bad Gateway</h1>\r\n", BROKEN, "502: <html> <h1>Bad Gateway</h1>"),
        (500, b'{"error":"stub"}', BROKEN, "500: stub"),
        (200, b"not json", BROKEN, "200: the answer is not JSON: b'not json'"),
    ],
)
def test_every_answer_but_the_wanted_one_is_one_error(
    url: str, status: int, data: bytes, kind: str, message: str
) -> None:
    Answering.answer = (status, data)
    with pytest.raises(RequestFailed) as problem:
        HttpClient(url).version()
    assert (problem.value.kind, str(problem.value)) == (kind, message)


def test_silence_has_a_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        for client in (HttpClient(address, 0.2), GrpcClient(address, 0.2)):
            with pytest.raises(RequestFailed) as problem:
                client.live()
            assert problem.value.kind == SILENT


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://127.0.0.1:1/", "http://no host"])
def test_nobody_there_is_silence_too(address: str) -> None:
    with pytest.raises(RequestFailed) as problem:
        HttpClient(address, 2).send("POST", "/v2", Body(data=b"", headers={}))
    assert problem.value.kind == SILENT


@pytest.mark.parametrize("datatype", sorted(BY_WIRE))
def test_every_wire_type_is_recognised(datatype: str) -> None:
    assert wire_type(np.zeros(1, dtype=BY_WIRE[datatype].numpy)) == datatype


@pytest.mark.parametrize(("said", "words"), [(b"\x00\x00\x18\x04", "the gRPC port?"), (b"", "no answer")])
def test_something_else_listens_there(said: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RequestFailed) as error:
            HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}", 5).version()
        thread.join()
    assert words in error.value.message


def entry(name: str, version: str, state: str, reason: str = "") -> dict[str, str]:
    return {"name": name, "version": version, "state": state, "reason": reason}


def test_control_of_the_repository(url: str) -> None:
    Answering.by_path = {
        "/v2/repository/models/a%20b/load": (400, {"error": "load failed"}),
        "/v2/repository/models/m/unload": (200, {}),
        "/v2/repository/models/m+1@a=b/load": (200, {}),  # the server decodes nothing
        "/v2/repository/index": (
            200,
            [
                {"name": "never"},
                entry("m", "1", "READY"),
                entry("m", "2", "UNAVAILABLE", "unloaded"),
                entry("bad", "1", "UNAVAILABLE", "no such file"),
            ],
        ),
    }
    http = HttpClient(url)
    assert http.load("a b") == "load failed"
    assert http.load("m") == "no such thing"
    assert http.load("m+1@a=b") == ""
    assert http.unload("m", steps=True) == ""
    assert http.states() == {"m": ("READY", ""), "bad": ("UNAVAILABLE", "no such file")}
    assert http.ready_models() == ("m",)
    assert [one.name for one in http.index() if one.failed] == ["bad"]
    assert http.wait_until_settled("m", 5) == {1: "READY", 2: "UNAVAILABLE"}


def test_a_server_may_keep_its_index_to_itself(url: str) -> None:
    Answering.by_path = {}
    assert HttpClient(url).index_or_empty() == ()
    with pytest.raises(RequestFailed):
        HttpClient(url).index()
    with pytest.raises(NoAnswer):
        HttpClient("127.0.0.1:1").index_or_empty()


def test_no_answer_is_also_a_connection_error() -> None:
    with pytest.raises(ConnectionError, match="no answer") as error:
        HttpClient("127.0.0.1:1").load("m")
    assert isinstance(error.value, RequestFailed)
    assert not HttpClient("127.0.0.1:1").answers_ready()
    assert not HttpClient("127.0.0.1:1").answers_live()


def test_a_model_that_is_not_described_is_an_error_of_the_server(url: str) -> None:
    Answering.answer = (400, b'{"error":"no such thing"}')
    with pytest.raises(TrbError) as error:
        HttpClient(url).describe("x")
    assert (error.value.code, error.value.where) == (Code.SERVER_DIED, "x")


def test_the_client_needs_no_numpy_until_the_first_tensor() -> None:
    code = "import sys, triton_repo_builder.run.client; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
