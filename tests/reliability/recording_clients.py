"""Clients that ask endpoints all the time, over HTTP and gRPC, and record every request for the checker."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reliability.checker import NONE, Request
from triton_repo_builder.run.client.values import NoAnswer, RequestFailed

TIMEOUT = 30.0
TOLERANCE = 1e-4
MOST_ROWS = 4
AFTER_AN_ERROR = 0.02
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An endpoint, the rows that it is asked, and what each version answers to each of them."""

    name: str
    input: str
    output: str
    rows: Array
    """[rows, …]: texts as objects, or numbers."""
    answers: Mapping[int, Array]
    """By version: [rows, numbers]."""

    def version(self, row: int, got: Array) -> int:
        """The version that answers so; NONE if none does."""
        for version, expected in self.answers.items():
            if got.shape == expected[row].shape and np.allclose(got, expected[row], atol=TOLERANCE):
                return version
        return NONE


class Clients:
    """Threads that ask until the ``with`` block ends."""

    def __init__(self, http_url: str, grpc_url: str, asked: Sequence[Asked], count: int, seed: int) -> None:
        self.requests: list[Request] = []
        self._http, self._grpc, self._asked = http_url.removeprefix("http://"), grpc_url, asked
        self._end = threading.Event()
        ways = (self._over_http, self._over_grpc)
        self._threads = [
            threading.Thread(target=ways[number % 2], args=(random.Random(f"{seed} {number}"),), daemon=True)
            for number in range(count)
        ]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT)
        assert not any(thread.is_alive() for thread in self._threads)

    def _over_http(self, rng: random.Random) -> None:
        connection = http.client.HTTPConnection(self._http, timeout=TIMEOUT)
        while not self._end.is_set():
            asked, rows = self._draw(rng)
            data = asked.rows[rows]
            texts = data.dtype.kind == "O"
            tensor = {
                "name": asked.input,
                "datatype": "BYTES" if texts else "FP32",
                "shape": list(data.shape),
                "data": [text.decode() for text in data.ravel()] if texts else data.ravel().tolist(),
            }
            body = json.dumps({"inputs": [tensor], "outputs": [{"name": asked.output}]})
            sent = time.monotonic()
            try:
                connection.request("POST", f"/v2/models/{asked.name}/infer", body)
                answer = connection.getresponse()
                said = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._failed(asked, sent, "http", repr(error), silent=True)
                continue
            if answer.status != 200:
                self._failed(asked, sent, "http", f"{answer.status} {said[:300]!r}")
                continue
            output = json.loads(said)["outputs"][0]
            self._answered(asked, sent, "http", rows, np.array(output["data"]).reshape(output["shape"]))
        connection.close()

    def _over_grpc(self, rng: random.Random) -> None:
        client = _Channel(self._grpc)
        while not self._end.is_set():
            asked, rows = self._draw(rng)
            sent = time.monotonic()
            try:
                answer = client.infer(asked, asked.rows[rows])
            except RequestFailed as error:
                silent = isinstance(error, NoAnswer)
                if silent:  # a channel waits longer and longer before it connects again
                    client.close()
                    client = _Channel(self._grpc)
                self._failed(asked, sent, "grpc", f"{error.message}", silent=silent)
                continue
            self._answered(asked, sent, "grpc", rows, answer)
        client.close()

    def _draw(self, rng: random.Random) -> tuple[Asked, list[int]]:
        asked = rng.choice(self._asked)
        return asked, [rng.randrange(len(asked.rows)) for _ in range(rng.randint(1, MOST_ROWS))]

    def _failed(self, asked: Asked, sent: float, way: str, error: str, *, silent: bool = False) -> None:
        now = time.monotonic()
        self.requests.append(
            Request(endpoint=asked.name, sent=sent, answered=now, error=error, silent=silent, protocol=way)
        )
        time.sleep(AFTER_AN_ERROR)

    def _answered(self, asked: Asked, sent: float, way: str, rows: Sequence[int], answer: Array) -> None:
        now = time.monotonic()
        complete = len(answer) == len(rows)
        versions = tuple(asked.version(row, got) for row, got in zip(rows, answer, strict=complete))
        self.requests.append(
            Request(
                endpoint=asked.name,
                sent=sent,
                answered=now,
                rows=versions if complete else (NONE,),
                protocol=way,
            )
        )


class _Channel:
    """A gRPC connection that no other thread shares."""

    def __init__(self, url: str) -> None:
        from tritonclient import grpc

        self._grpc = grpc
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._client = grpc.InferenceServerClient(url, channel_args=options)

    def close(self) -> None:
        self._client.close()

    def infer(self, asked: Asked, data: Array) -> Array:
        """Raises ``NoAnswer``, ``RequestFailed``."""
        from tritonclient.utils import InferenceServerException

        kind = "BYTES" if data.dtype.kind == "O" else "FP32"
        tensor = self._grpc.InferInput(asked.input, list(data.shape), kind).set_data_from_numpy(data)
        try:
            answer: Array = self._client.infer(
                asked.name,
                [tensor],
                outputs=[self._grpc.InferRequestedOutput(asked.output)],
                client_timeout=TIMEOUT,
            ).as_numpy(asked.output)
        except InferenceServerException as error:
            status, text = str(error.status()), str(error.message())
            lost = ("connect", "Socket closed", "reset", "GOAWAY", "Broken pipe", "Stream removed")
            if "DEADLINE" in status or any(part.lower() in text.lower() for part in lost):
                raise NoAnswer(f"{status} {text}") from None
            raise RequestFailed("error", status, f"{status} {text}") from None
        return answer
