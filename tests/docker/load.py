"""Requests over HTTP and gRPC without a pause, each of them counted."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

DEADLINE = 30
"""Seconds that a client waits for an answer."""


@dataclass
class Counts:
    """Requests of a load."""

    answers: Counter[str] = field(default_factory=Counter)
    """Answered requests by kind."""
    values: Counter[float] = field(default_factory=Counter)
    """The same by what was answered."""
    lost: list[tuple[str, float, str]] = field(default_factory=list)
    """Kind, seconds since the start at which it was sent, and why there is no answer."""
    longest: float = 0.0
    """Seconds of the slowest answer."""
    started: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def lost_after(self, seconds: float) -> list[tuple[str, float, str]]:
        """Lost requests that were sent later than this."""
        return [each for each in self.lost if each[1] > seconds]

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} over {kind}" for kind, count in sorted(self.answers.items()))
        return f"{kinds}; lost {len(self.lost)}; slowest {self.longest:.2f} s; answers {dict(self.values)}"


@contextmanager
def load(host: str, *, http_port: int, grpc_port: int, model: str, clients: int) -> Iterator[Counts]:
    """Load from that many clients of each kind until the end; then each waits for its last answer."""
    counts, lock, end = Counts(), threading.Lock(), threading.Event()

    def client(kind: str, ask: Callable[[], float]) -> None:
        while not end.is_set():
            sent = counts.now
            try:
                value = ask()
            except Exception as error:
                with lock:
                    counts.lost.append((kind, sent, f"{type(error).__name__}: {error}"))
                time.sleep(0.05)
                continue
            with lock:
                counts.answers[kind] += 1
                counts.values[value] += 1
                counts.longest = max(counts.longest, counts.now - sent)

    asks = [("HTTP", _over_http(host, http_port, model)) for _ in range(clients)]
    asks += [("gRPC", _over_grpc(host, grpc_port, model)) for _ in range(clients)]
    threads = [threading.Thread(target=client, args=each, daemon=True) for each in asks]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        end.set()
        for thread in threads:
            thread.join(2 * DEADLINE)


def _over_http(host: str, port: int, model: str) -> Callable[[], float]:
    """A request over a connection that is kept, as clients do."""
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    body = json.dumps({"inputs": [tensor]}).encode()
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE)

    def ask() -> float:
        try:
            connection.request(
                "POST", f"/v2/models/{model}/infer", body, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, f"{answer.status} {text[:200].decode()}"
        except Exception:
            connection.close()
            raise
        return float(json.loads(text)["outputs"][0]["data"][0])

    return ask


def _over_grpc(host: str, port: int, model: str) -> Callable[[], float]:
    import tritonclient.grpc as triton

    # Each its own connection, and no retries.
    client = triton.InferenceServerClient(
        f"{host}:{port}", channel_args=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    )
    given = triton.InferInput("X", [1, 2], "FP32")
    given.set_data_from_numpy(np.array([[1, 2]], np.float32))

    def ask() -> float:
        return float(client.infer(model, [given], client_timeout=DEADLINE).as_numpy("Y").ravel()[0])

    return ask
