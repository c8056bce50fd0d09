"""``trb top`` on a real server under load: its numbers against what was sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import cli, serve_repository, servers, tiny
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.codec import encode_binary

INTERVAL = 2.0
ROWS = 3
"""Texts of a request."""
CALM = 0.02
"""Seconds between two requests of a client."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serve.RunningServer]:
    root = tmp_path_factory.mktemp("top")
    tiny.put(tiny.classifier(root / "model"), root / "repository", name="labels")
    serve_repository.python(root / "repository", "plain")
    options = servers.free(percentiles=True)
    with serve.start(root / "repository", options, engine="embedded") as running:
        yield running


class Sent:
    """Answered and failed requests, with the time of each."""

    def __init__(self) -> None:
        self.answered: list[float] = []
        self.failed: list[float] = []

    def per_second(self, times: list[float], begin: float, end: float) -> float:
        return sum(begin <= each < end for each in times) / (end - begin)


@contextmanager
def load(url: str) -> Iterator[Sent]:
    """Three clients with requests of three texts, and one whose requests the server refuses."""
    sent, ended = Sent(), threading.Event()
    http = HttpClient(url)
    texts = np.array([[b"a b c"], [b"b"], [b"c a"]], dtype=object)
    good = encode_binary({"TEXT": texts})
    wrong = encode_binary({"TEXT": np.array([[b"\xff"]], dtype=object)})

    def client(body: Any) -> None:
        while not ended.wait(CALM):
            try:
                http.infer("labels", body)
                sent.answered.append(time.monotonic())
            except RequestFailed:
                sent.failed.append(time.monotonic())

    threads = [threading.Thread(target=client, args=(body,)) for body in (good, good, good, wrong)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        yield sent
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def once(*arguments: str) -> Any:
    return json.loads(cli.trb("top", *arguments, "--once", "--interval", str(INTERVAL), "--json"))


def test_numbers_are_what_was_sent(server: serve.RunningServer) -> None:
    with load(server.urls.http) as sent:
        begin = time.monotonic()
        document = once(server.urls.http, "--metrics-url", server.urls.metrics)
        end = time.monotonic()
    (seen,) = document["servers"]
    assert (seen["state"], seen["problem"], seen["metrics_problem"]) == ("ready", "", "")
    assert seen["seconds"] >= INTERVAL
    assert 0 < seen["cores"] < 64
    assert seen["memory_bytes"] > 20 << 20
    endpoints = {each["endpoint"]: each for each in seen["endpoints"]}
    assert set(endpoints) == {"labels", "plain"}
    labels = endpoints["labels"]
    rate = sent.per_second(sent.answered, begin, end)
    assert labels["requests"] == pytest.approx(labels["requests_per_s"] * seen["seconds"])
    assert labels["requests_per_s"] == pytest.approx(rate, rel=0.35)
    assert labels["rows_per_s"] == pytest.approx(ROWS * labels["requests_per_s"])
    failed = sent.per_second(sent.failed, begin, end)
    assert failed > 0
    assert sum(labels["failures_per_s"].values()) == pytest.approx(failed, rel=0.35)
    times = labels["latency_ms"]
    assert 0 < times["p50"] <= times["p99"]
    assert 0 < times["mean"] < 60_000
    models = {model["model"]: model for model in labels["models"]}
    assert models["labels_model"]["backend"] == "onnxruntime"
    assert models["labels_tokenizer"]["backend"] == "python"
    assert labels["rows_per_execution"] >= ROWS
    assert labels["queue_ms"] > 0
    assert 0 < labels["busy"] < 8
    assert labels["cores"] == pytest.approx(sum(model["cores"] for model in labels["models"][1:]))
    assert labels["cores"] <= seen["cores"]


def test_a_model_that_is_not_ours_has_rates_and_no_texts(server: serve.RunningServer) -> None:
    (seen,) = once(server.urls.http, "--metrics-url", server.urls.metrics)["servers"]
    plain = next(each for each in seen["endpoints"] if each["endpoint"] == "plain")
    assert (plain["requests"], plain["failures_per_s"]) == (0, {})
    assert (plain["tokens_per_text"], plain["labels"]) == (None, {})
    assert [model["model"] for model in plain["models"]] == ["plain"]


def test_a_server_of_another_page_is_not_mixed_up(server: serve.RunningServer) -> None:
    done = cli.call("top", server.urls.http, "--metrics-url", server.urls.http, "--once", "--interval", "0.2")
    assert done.returncode == 0
    assert "labels" in done.stdout
    assert server.urls.http in done.stderr


def test_the_grpc_port_is_no_http_server(server: serve.RunningServer) -> None:
    done = cli.call("top", f"http://{server.urls.grpc}", "--once")
    assert "gRPC port" in done.stderr


@pytest.mark.slow
def test_servers_in_the_background_are_known_with_their_metrics(tmp_path: Path) -> None:
    serve_repository.python(tmp_path / "repository", "plain")
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    done = cli.in_folder(tmp_path, "serve", "repository", *ports, "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    try:
        seen = cli.in_folder(tmp_path, "top", "--once", "--interval", "0.2", "--json")
        (each,) = json.loads(seen.stdout)["servers"]
        assert (each["state"], each["metrics_problem"]) == ("ready", "")
        assert [endpoint["endpoint"] for endpoint in each["endpoints"]] == ["plain"]
        assert each["cores"] is not None
    finally:
        assert cli.in_folder(tmp_path, "stop").returncode == 0
