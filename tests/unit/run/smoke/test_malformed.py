"""Malformed requests against servers of several releases: which refusals are right."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from triton_repo_builder.base import releases
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import REFUSED, HttpClient, RequestFailed
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.options import SmokeOptions
from triton_repo_builder.run.smoke import malformed
from triton_repo_builder.run.smoke.report import Check, Status
from triton_repo_builder.run.smoke.session import JSON, ServedEndpoint, SmokeSession

TEXTS = {
    "2.51.0": "Unable to parse 'data': Shape does not match true shape of 'data' field",
    "2.70.0": "Failed to parse 'data' field: shape does not match true shape",
    "2.70.0 of an empty list": "Failed to parse 'data' field: output buffer unavailable",
}
"""What a server says of data shorter than its shape."""


class Triton(BaseHTTPRequestHandler):
    """The HTTP front of a server with one model, which takes what is sound."""

    version: ClassVar[str]
    short: ClassVar[str]
    unknown_output: ClassVar[int]
    unready: ClassVar[set[str]]

    def do_GET(self) -> None:
        if self.path == "/v2":
            return self.say(200, {"version": self.version})
        ready = not any(f"/{name}/" in f"{self.path}/" for name in self.unready)
        return self.say(200 if ready else 400, {})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        binary = "Inference-Header-Content-Length" in self.headers
        status, text = self.judge(data) if data and not binary else (400, "no such thing")
        self.say(status, {"error": text} if text else {"outputs": []})

    def judge(self, data: bytes) -> tuple[int, str]:
        try:
            request = json.loads(data)
        except ValueError:
            return 500, "failed to parse the request JSON buffer: Invalid value. at 19"
        if "inputs" not in request:
            return 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"
        if "outputs" in request:
            return self.unknown_output, "unexpected inference output 'no_such_output'"
        tensor = next(iter(request["inputs"]), {"shape": [1], "data": [1]})
        if any(size < 0 for size in tensor["shape"]):
            return 500, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer"
        if len(tensor["data"]) != np.prod(tensor["shape"]):
            return 500, self.short
        if "not a number" in tensor["data"]:
            return 500, "Unable to parse 'data': attempt to access JSON non-number as double"
        return 400, "no such thing"

    def say(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Grpc:
    """The gRPC front: it refuses every request, and is ready."""

    def live(self) -> bool:
        return True

    def ready(self, model: str = "") -> bool:
        return True

    def infer(self, *_: object) -> None:
        raise RequestFailed(REFUSED, "INVALID_ARGUMENT", "no")


@contextmanager
def triton(
    version: str, short: str, unknown_output: int = 400, unready: tuple[str, ...] = ()
) -> Iterator[SmokeSession]:
    fields = {"version": version, "short": short, "unknown_output": unknown_output, "unready": {*unready}}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Server", (Triton,), fields))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        http = HttpClient(f"http://127.0.0.1:{server.server_port}", 10)
        release = releases.of_server(http.version())
        yield SmokeSession(http=http, grpc=cast(GrpcClient, Grpc()), options=SmokeOptions(), release=release)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def checked(session: SmokeSession) -> dict[tuple[str, str], Check]:
    """The probes over HTTP, by name and status."""
    interface = Endpoint(
        name="net",
        inputs=(Tensor(name="X", datatype="FP32", shape=(-1, 2)),),
        outputs=(Tensor(name="Y", datatype="FP32", shape=(-1, 2)),),
        max_batch_size=8,
    )
    example = {"X": np.ones((1, 2), np.float32)}
    endpoint = ServedEndpoint(
        interface=interface, models={"net": 1, "step": 1}, file=None, golden=False, example=example
    )
    return {(check.name, check.protocol): check for check in malformed.checks(session, endpoint)}


@pytest.mark.parametrize("version", sorted(TEXTS))
def test_short_data_is_refused_in_the_words_of_any_release(version: str) -> None:
    with triton(version.partition(" ")[0], TEXTS[version]) as session:
        checks = checked(session)
    assert ("data shorter than the shape", JSON) in checks
    assert [str(check) for check in checks.values() if check.status is not Status.PASSED] == []


def test_a_server_error_that_is_not_the_parsers_fails() -> None:
    """The same words in answer to another request: a model may have said them."""
    with triton("2.70.0", TEXTS["2.70.0"], unknown_output=500) as session:
        checks = checked(session)
    wrong = [check for check in checks.values() if check.status is Status.FAILED]
    assert [(check.name, check.protocol) for check in wrong] == [("an unknown output", JSON)]
    assert "got a server error" in wrong[0].detail


def test_another_endpoint_that_failed_says_nothing_against_this_one() -> None:
    """It makes the server not ready, the models of this one stay as they were."""
    with triton("2.70.0", TEXTS["2.70.0"], unready=("health/ready",)) as session:
        assert not session.http.ready()
        assert {check.status for check in checked(session).values()} == {Status.PASSED}


def test_a_step_that_lost_its_process_is_seen_below_a_ready_ensemble() -> None:
    with triton("2.70.0", TEXTS["2.70.0"], unready=("step",)) as session:
        assert session.http.ready("net")
        (check,) = checked(session).values()
    assert check.status is Status.UNVERIFIED
    assert "expected step to be ready afterwards, but it is not" in check.detail
