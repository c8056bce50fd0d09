"""The two encodings, the one error, and inputs made or lengthened by smoke."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.client import (
    BROKEN,
    REFUSED,
    SILENT,
    Body,
    GrpcClient,
    HttpClient,
    RequestFailed,
    encode_binary,
    encode_json,
    wire_type,
)
from triton_repo_builder.client.codec import decode
from triton_repo_builder.dtypes import BY_WIRE
from triton_repo_builder.smoke.neighbour import WORDS, lengthened
from triton_repo_builder.smoke.target import steps


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

    def do_GET(self) -> None:
        """Send it."""
        status, data = self.answer
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
        (500, b'{"error":"stub"}', BROKEN, "500: stub"),
        (200, b"not json", BROKEN, "200: the answer is no JSON: b'not json'"),
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


@given(st.text(max_size=50), st.text(max_size=2000))
def test_a_long_neighbour_has_exactly_so_many_words(short: str, long: str) -> None:
    inputs = {
        "a": np.array([[short.encode("utf-8", "replace")]], dtype=object),
        "b": np.array([[long.encode("utf-8", "replace")]], dtype=object),
        "n": np.array([[1]], dtype=np.int64),
    }
    result = lengthened(inputs)
    assert list(result) == ["a", "b", "n"]
    changed = [name for name in inputs if result[name] is not inputs[name]]
    assert changed == ["a" if len(inputs["a"][0, 0]) >= len(inputs["b"][0, 0]) else "b"]
    assert len(result[changed[0]][0, 0].split()) == WORDS


def test_steps_are_named_once_for_each_call() -> None:
    assert steps({"name": "plain"}) == []
    assert steps({"ensemble_scheduling": {"step": [{"model_name": "a"}, {"model_name": "a"}]}}) == ["a", "a"]


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
