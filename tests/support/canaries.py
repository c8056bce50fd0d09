"""Two servers of one endpoint behind a real Traefik, of which one misbehaves as a file says; their load."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from tests.support import traefik
from tests.support.servers import free
from tests.support.traefik import Traefik
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.ship.targets import routes
from triton_repo_builder.ship.targets.routes import Backend

ENDPOINT = "mood"
GOOD, FAILING, SLOW, OTHER, OTHER_GOLDEN = "good", "failing", "slow", "other", "other-golden"
"""What the canary does with texts of the load; OTHER_GOLDEN with all texts."""
OUT_OF_SORTS = "out of sorts"
SECONDS = 0.1
BODY = 16 << 20
"""Bytes of the largest request."""
MODEL = """
import json
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

BEHAVIOUR = Path("@BEHAVIOUR@")


class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="trb_answers_total", description="Answers.", kind=pb_utils.MetricFamily.COUNTER
        )
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.counters = {
            label: self.family.Metric(labels={**labels, "label": label}) for label in ("even", "odd")
        }
        self.number = 0

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        behaviour = BEHAVIOUR.read_text()
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)[0].decode()
        live = text.startswith("live")
        slow = live and behaviour == "slow"
        time.sleep(@SECONDS@ * (1.5 if slow else 1.0))
        self.number += 1
        if live and behaviour == "failing" and self.number % 4 == 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("out of sorts"))
        label = "odd" if len(text) % 2 else "even"
        if behaviour == "other-golden" or (live and behaviour == "other"):
            label = "even"
        self.counters[label].increment(1)
        scores = np.array([[0.9, 0.1]], dtype=np.float32)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("label", np.array([[label.encode()]], dtype=object)),
                pb_utils.Tensor("score", scores[:, :1]),
                pb_utils.Tensor("scores", scores),
            ]
        )
"""
CONFIG = """
backend: "python"
max_batch_size: 1
input [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]
output [
  { name: "label" data_type: TYPE_STRING dims: [1] },
  { name: "score" data_type: TYPE_FP32 dims: [1] },
  { name: "scores" data_type: TYPE_FP32 dims: [2] }
]
instance_group [{ count: 6 kind: KIND_CPU }]
"""
DEPLOY = """
name = "mood"
[repository]
path = "{repository}"
[exposure]
admin_key = "{key}"
[canary]
steps = [20, 50, 100]
requests = {requests}
hold = "{hold}"
timeout = "{timeout}"
"""


def repository(root: Path, behaviour: Path, name: str = ENDPOINT) -> Path:
    """A hand-made repository of one endpoint, which behaves as the file says."""
    version = root / "repository" / name / "1"
    version.mkdir(parents=True)
    code = MODEL.replace("@BEHAVIOUR@", str(behaviour)).replace("@SECONDS@", str(SECONDS))
    (version / "model.py").write_text(code)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    behaviour.write_text(GOOD)
    return root / "repository"


def deploy(
    folder: Path, repository: Path, *, requests: int = 40, hold: str = "2s", timeout: str = "4m"
) -> Path:
    """A deploy.toml."""
    key = folder / "admin_key"
    key.write_text("a-key-of-the-administrative-apis\n")
    key.chmod(0o600)
    file = folder / "deploy.toml"
    file.write_text(
        DEPLOY.format(repository=repository, key=key, requests=requests, hold=hold, timeout=timeout)
    )
    return file


def backend(running: serve.RunningServer) -> Backend:
    """A server as Traefik on this machine reaches it."""
    return Backend(http=running.urls.http, grpc=f"h2c://{running.urls.grpc}")


@dataclass(frozen=True)
class Stage:
    """Everything that runs."""

    stable: serve.RunningServer
    canary: serve.RunningServer
    traefik: Traefik
    file: Path
    """The routes file, all of whose traffic is the stable server's."""
    exported: str
    """Its text."""
    behaviour: Path
    """Of the canary."""
    canary_repository: Path
    deploy: Path

    def arguments(self, deploy: Path | None = None) -> list[str]:
        """The command line of ``trb canary start``, without ``trb``."""
        return ["canary", "start", str(deploy or self.deploy), *self.servers()]

    def servers(self) -> list[str]:
        """Options that say where everything is."""
        options = {
            "--stable": self.stable.urls.http,
            "--stable-grpc": self.stable.urls.grpc,
            "--stable-metrics": self.stable.urls.metrics,
            "--canary": self.canary.urls.http,
            "--canary-grpc": self.canary.urls.grpc,
            "--canary-metrics": self.canary.urls.metrics,
            "--routes": str(self.file),
            "--traefik": self.traefik.api,
        }
        return [word for pair in options.items() for word in pair]


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Two servers of hand-made models, and a Traefik that sends everything to the first."""
    behaviours = {side: folder / f"{side}-behaviour" for side in ("stable", "canary")}
    first, second = (repository(folder / side, behaviours[side]) for side in behaviours)
    with proxied(folder, first, second, ENDPOINT, behaviours["canary"]) as everything:
        yield everything


@contextmanager
def proxied(
    folder: Path, first: Path, second: Path, endpoint: str, behaviour: Path = Path()
) -> Iterator[Stage]:
    """Servers of two repositories, and a Traefik that sends everything to the first."""
    traefik.binary()
    with serve.start(first, free()) as stable, serve.start(second, free()) as canary:
        file = folder / "traefik" / "routes.yml"
        file.parent.mkdir()
        ready = f"/v2/models/{endpoint}/ready"
        exported = routes.text(routes.Routes(stable=(backend(stable),), body_limit=BODY, ready=ready))
        file.write_text(exported)
        with traefik.running(folder, file) as proxy:
            yield Stage(
                stable=stable,
                canary=canary,
                traefik=proxy,
                file=file,
                exported=exported,
                behaviour=behaviour,
                canary_repository=second,
                deploy=deploy(folder, second),
            )


@dataclass
class Load:
    """What clients sent and got, by protocol; thread-safe enough: each key is one thread's."""

    sent: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def lost(self) -> list[str]:
        """Failures that are not the model's own."""
        return [failure for failure in self.failures if OUT_OF_SORTS not in failure]


@contextmanager
def load(proxy: Traefik, *, over_http: int = 4, over_grpc: int = 2) -> Iterator[Load]:
    """Clients that send one request after the other until the end."""
    counted, stop = Load(), threading.Event()
    clients = [(over_http, _http), (over_grpc, _grpc)]
    threads = [
        threading.Thread(target=client, args=(proxy, f"{client.__name__}{number}", counted, stop))
        for clients_of, client in clients
        for number in range(clients_of)
    ]
    for thread in threads:
        thread.start()
    try:
        yield counted
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def texts() -> Iterator[str]:
    """As many of even length as of odd."""
    return (f"live {'x' * (number % 2)}" for number in itertools.count())


def _http(proxy: Traefik, name: str, counted: Load, stop: threading.Event) -> None:
    parts = urlsplit(proxy.http)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    for text in texts():
        if stop.is_set():
            break
        body = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]}]}
        counted.sent[name] += 1
        try:
            connection.request("POST", f"/v2/models/{ENDPOINT}/infer", json.dumps(body))
            answer = connection.getresponse()
            content = answer.read().decode()
        except OSError as error:
            counted.failures.append(f"{name}: {error!r}")
            connection.close()
            continue
        except http.client.HTTPException as error:
            counted.failures.append(f"{name}: {error!r}")
            connection.close()
            continue
        if answer.status == 200:
            counted.answered[name] += 1
        else:
            counted.failures.append(f"{name}: {answer.status} {content}")
    connection.close()


def _grpc(proxy: Traefik, name: str, counted: Load, stop: threading.Event) -> None:
    client = GrpcClient(proxy.grpc, 60)
    for text in texts():
        if stop.is_set():
            break
        inputs: dict[str, Any] = {"TEXT": np.array([[text.encode()]], dtype=object)}
        counted.sent[name] += 1
        try:
            client.infer(ENDPOINT, inputs)
        except RequestFailed as error:
            counted.failures.append(f"{name}: {error}")
        else:
            counted.answered[name] += 1
    with suppress(RequestFailed):
        client.close()
