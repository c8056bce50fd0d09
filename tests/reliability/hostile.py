"""Requests that a server must survive: each is answered with an error, or its connection is closed."""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable

TIMEOUT = 60.0
LARGE = 64 << 20
SLOW = 10.0
"""Seconds that a slow client holds its connections."""
FORM = "application/x-www-form-urlencoded"


class Hostile(threading.Thread):
    """One client that sends one kind after the other until the ``with`` block ends."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.answers: Counter[tuple[str, str]] = Counter()
        """How often each kind was answered with which status."""
        self._port, self._rng, self._end = port, random.Random(seed), threading.Event()
        self.kinds: dict[str, Callable[[], str]] = {
            "a number for a text": lambda: self._infer("text", "TEXT", "INT64", [1, 1], [7]),
            "a text for numbers": lambda: self._infer("net", "X", "BYTES", [1, 32], ["x"] * 32),
            "NaN and infinity": self._not_numbers,
            "5,000 rows": lambda: self._infer("text", "TEXT", "BYTES", [5000, 1], ["a"] * 5000),
            "a negative shape": lambda: self._infer("net", "X", "FP32", [-1, 32], [1.0] * 32),
            "fewer numbers than the shape": lambda: self._infer("net", "X", "FP32", [4, 32], [1.0]),
            "no such model": lambda: self._infer("nobody", "X", "FP32", [1], [1.0]),
            "bytes that are not UTF-8": self._not_text,
            "a length that is a lie": self._lying_length,
            "JSON that is cut off": lambda: self._post("/v2/models/net/infer", b'{"inputs": ['),
            "JSON 64 MB large": self._large,
            "a text of 1 MB": lambda: self._infer("text", "TEXT", "BYTES", [1, 1], ["a b " * (1 << 18)]),
            "a text of 2 MB": lambda: self._infer("text", "TEXT", "BYTES", [1, 1], ["a b " * (1 << 19)]),
            "blanks of 1 MB": lambda: self._infer("text", "TEXT", "BYTES", [1, 1], [" " * ((1 << 20) - 1)]),
            "a form of 1 MB": lambda: self._post("/v2/models/net/infer", b"a=" + b"b" * (1 << 20), FORM),
            "20 slow clients": self._slow,
            "bytes that are not HTTP": self._noise,
        }
        self.killers: dict[str, Callable[[], str]] = {
            "a shape of billions": lambda: self._infer("net", "X", "FP32", [1 << 31, 1 << 31], [1.0]),
            "a form of 8 MB": lambda: self._post("/v2/models/net/infer", b"a=" + b"b" * (8 << 20), FORM),
        }
        """Requests that end tritonserver 2.51 itself: they are sent last."""

    def __enter__(self) -> Hostile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(4 * TIMEOUT)

    def run(self) -> None:
        """Every kind, in another order each time."""
        while True:
            for kind in self._rng.sample(sorted(self.kinds), len(self.kinds)):
                if self._end.wait(self._rng.uniform(0, 0.5)):
                    return
                self.answers[kind, self.send(kind)] += 1

    def send(self, kind: str) -> str:
        """The status of the answer, or what became of the connection."""
        try:
            return {**self.kinds, **self.killers}[kind]()
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__

    def _infer(self, model: str, name: str, datatype: str, shape: list[int], data: list[object]) -> str:
        tensor = {"name": name, "datatype": datatype, "shape": shape, "data": data}
        return self._post(f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode())

    def _post(self, path: str, body: bytes, kind: str = "application/json", **headers: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
        try:
            more = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("POST", path, body, {"Content-Type": kind, **more})
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        finally:
            connection.close()

    def _binary(self, model: str, name: str, datatype: str, shape: list[int], data: bytes, size: int) -> str:
        parameters = {"binary_data_size": size}
        tensor = {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}
        head = json.dumps({"inputs": [tensor]}).encode()
        path = f"/v2/models/{model}/infer"
        length = {"Inference_Header_Content_Length": str(len(head))}
        return self._post(path, head + data, "application/octet-stream", **length)

    def _not_numbers(self) -> str:
        data = struct.pack("<32f", *[float("nan"), float("inf"), float("-inf"), 3e38] * 8)
        return self._binary("net", "X", "FP32", [1, 32], data, len(data))

    def _not_text(self) -> str:
        data = struct.pack("<I", 4) + b"\xff\xfe\x80a"
        return self._binary("text", "TEXT", "BYTES", [1, 1], data, len(data))

    def _lying_length(self) -> str:
        return self._binary("text", "TEXT", "BYTES", [1, 1], struct.pack("<I", 1 << 30) + b"a", 5)

    def _large(self) -> str:
        return self._post("/v2/models/net/infer", b'{"inputs": [' + b" " * LARGE + b"]}")

    def _slow(self) -> str:
        """Connections that send a header letter by letter, and never end it."""
        head = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
        sockets = [socket.create_connection(("127.0.0.1", self._port), TIMEOUT) for _ in range(20)]
        try:
            begun = time.monotonic()
            for letter in head:
                for each in sockets:
                    each.send(bytes([letter]))
                if self._end.wait(SLOW / len(head)) or time.monotonic() - begun > SLOW:
                    break
        finally:
            for each in sockets:
                each.close()
        return "held"

    def _noise(self) -> str:
        with socket.create_connection(("127.0.0.1", self._port), TIMEOUT) as connection:
            connection.sendall(self._rng.randbytes(4096) + b"\r\n\r\n")
            connection.settimeout(5)
            try:
                return connection.recv(64)[:12].decode("latin-1") or "closed"
            except TimeoutError:
                return "no answer"
