"""Operation of a gateway: abandoned requests, back-pressure, keys, a server that ends, a stop under load."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from tests.support import gateways, slow_embedder
from tests.support.cli import ARGV, own
from tests.support.serve_repository import free_port, until
from tests.support.servers import free
from tests.support.slow_embedder import embedding
from triton_repo_builder.run import serve

pytestmark = [pytest.mark.server, pytest.mark.gateway]
SLOW = 0.25
"""Seconds for each request to the slow endpoint."""
LOAD = """
import http.client, json, sys, time
port, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
count = failed = 0
connection = None
while time.monotonic() < until:
    try:
        connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.connect() if connection.sock is None else None
    except ConnectionRefusedError:
        break  # a proxy would ask another gateway
    try:
        connection.request("POST", "/v1/embeddings", json.dumps({"model": "quick", "input": "x"}))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            print(answer.status, text, file=sys.stderr)
            failed += 1
    except Exception as error:
        print(repr(error), file=sys.stderr)
        failed += 1
        connection = None
    count += 1
print(count, failed)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = slow_embedder.write(tmp_path_factory.mktemp("operate") / "repository", "slow", SLOW, rows=1)
    return slow_embedder.write(root, "quick")


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[serve.RunningServer]:
    with serve.start(repository, free()) as triton:
        yield triton


def running(tmp: Path, triton: str, *arguments: str) -> AbstractContextManager[str]:
    """A gateway that stops at once."""
    return gateways.running(tmp, triton, "--drain", "0", *arguments)


def post(url: str, text: Any, model: str = "quick", **more: Any) -> requests.Response:
    body = {"model": model, "input": text}
    return requests.post(f"{url}/v1/embeddings", json=body, timeout=60, **more)


def vectors(answer: requests.Response) -> list[list[float]]:
    return [row["embedding"] for row in answer.json()["data"]]


def statistics(server: serve.RunningServer, model: str) -> dict[str, int]:
    answer = requests.get(f"{server.urls.http}/v2/models/{model}/stats", timeout=30).json()
    counts = answer["model_stats"][0]["inference_stats"]
    return {kind: int(counts[kind]["count"]) for kind in ("success", "fail")}


def cancelled(server: serve.RunningServer, model: str) -> int:
    """Requests that Triton gave up because their client had cancelled them, by its own metrics."""
    page = requests.get(server.urls.metrics, timeout=30).text
    pattern = rf'nv_inference_request_failure{{model="{model}",reason="CANCELED",version="1"}} (\d+)'
    return sum(map(int, re.findall(pattern, page)))


def test_what_a_client_abandons_is_cancelled_down_to_triton(
    tmp_path: Path, server: serve.RunningServer
) -> None:
    before, gone = statistics(server, "slow"), cancelled(server, "slow")
    with running(tmp_path, server.urls.grpc, "--log-format", "json") as url:

        async def abandon() -> None:
            async with httpx.AsyncClient(timeout=0.6) as client:
                body = {"model": "slow", "input": "x"}
                asked = [client.post(f"{url}/v1/embeddings", json=body) for _ in range(30)]
                answers = await asyncio.gather(*asked, return_exceptions=True)
            assert sum(isinstance(answer, httpx.TimeoutException) for answer in answers) >= 25

        asyncio.run(abandon())
        begun = time.monotonic()
        answer = post(url, "next", "slow")
        assert vectors(answer) == [embedding("next")]
        # 30 requests would have kept the endpoint busy for 7.5 seconds.
        assert time.monotonic() - begun < 3
        until(lambda: cancelled(server, "slow") - gone >= 20)
        after = statistics(server, "slow")
        assert after["success"] - before["success"] <= 10
        lines = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
        assert sum(line["gone"] for line in lines) >= 25
        page = requests.get(f"{url}/metrics", timeout=30).text
        assert 'trb_gateway_failures_total{cause="client_gone"}' in page
        assert "\ntrb_gateway_requests_in_flight 0.0\n" in page


def test_requests_that_would_wait_too_long_are_refused_at_once(
    tmp_path: Path, server: serve.RunningServer
) -> None:
    with running(tmp_path, server.urls.grpc, "--deadline", "2") as url:
        for _ in range(3):
            assert post(url, "x", "slow").status_code == 200

        def ask(number: int) -> tuple[int, float, requests.Response]:
            begun = time.monotonic()
            answer = post(url, f"text {number}", "slow")
            return answer.status_code, time.monotonic() - begun, answer

        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(ask, range(24)))
        statuses = [status for status, _, _ in answers]
        assert set(statuses) == {200, 429}
        assert 4 <= statuses.count(200) <= 12
        for number, (status, seconds, answer) in enumerate(answers):
            if status == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["code"] == "overloaded"
                assert seconds < 1.5
            else:
                assert vectors(answer) == [embedding(f"text {number}")]
        assert post(url, "x", "quick").status_code == 200


def test_requests_and_rows_under_way_are_limited(tmp_path: Path, server: serve.RunningServer) -> None:
    arguments = ("--max-requests", "3", "--max-rows", "8")
    with running(tmp_path, server.urls.grpc, *arguments) as url, ThreadPoolExecutor(10) as pool:
        statuses = [answer.status_code for answer in pool.map(lambda _: post(url, "x", "slow"), range(10))]
        assert (statuses.count(200), statuses.count(429)) == (3, 7)
        first = pool.submit(post, url, ["x"] * 12, "slow")
        until(lambda: "trb_gateway_rows_in_flight 12.0" in requests.get(f"{url}/metrics").text)
        assert post(url, ["x"] * 4, "slow").status_code == 429
        assert len(vectors(first.result())) == 12


def test_triton_may_end_and_start_again(tmp_path: Path, repository: Path) -> None:
    port = free_port()
    options = replace(free("quick"), grpc_port=port)
    with running(tmp_path, f"127.0.0.1:{port}") as url:
        unknown = post(url, "x")
        assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "1")
        for _ in range(2):
            with serve.start(repository, options) as triton:
                until(lambda: post(url, "x").status_code == 200, 30)
                assert vectors(post(url, "one")) == [embedding("one")]
                assert triton.pid is not None
                os.kill(triton.pid, signal.SIGKILL)
                until(lambda: post(url, "x").status_code != 200, 10)
                gone = post(url, "x")
                assert (gone.status_code, gone.headers["retry-after"]) == (503, "1")
                assert gone.json()["error"]["type"] == "server_error"


def test_an_endpoint_that_is_unloaded_and_loaded_again(tmp_path: Path, repository: Path) -> None:
    with serve.start(repository, free("quick", "slow")) as triton, running(tmp_path, triton.urls.grpc) as url:

        def change(verb: str) -> None:
            models = f"{triton.urls.http}/v2/repository/models"
            assert requests.post(f"{models}/quick/{verb}", json={}, timeout=60).status_code == 200

        assert post(url, "x").status_code == 200
        change("unload")
        seen = set()
        until(lambda: seen.add(post(url, "x").status_code) or 404 in seen, 30)
        assert seen <= {200, 404, 503}
        change("load")
        until(lambda: post(url, "x").status_code == 200, 30)


def test_keys_are_read_again_on_change(tmp_path: Path, server: serve.RunningServer) -> None:
    keys = tmp_path / "keys"
    first, second = "key-of-the-first-team", "key-of-the-second-team"
    keys.write_text(f"{first} first team\n")
    keys.chmod(0o600)
    arguments = ("--api-keys", str(keys), "--log-format", "json")
    with running(tmp_path / "process", server.urls.grpc, *arguments) as url:

        def status(key: str) -> int:
            return post(url, "x", headers={"Authorization": f"Bearer {key}"}).status_code

        assert (status(first), status(second), post(url, "x").status_code) == (200, 401, 401)
        keys.write_text("sha256:" + hashlib.sha256(second.encode()).hexdigest() + "\n")
        until(lambda: status(second) == 200, 20)
        assert status(first) == 401
        keys.write_text("sha256:broken\n")
        said = tmp_path / "process" / "stderr"
        until(lambda: "the API keys stay as they were" in said.read_text(), 20)
        assert (status(second), status(first)) == (200, 401)
        assert '"owner":"first team"' in said.read_text()
        body = {"model": "quick", "input": 5}
        refused = requests.post(
            f"{url}/v1/embeddings", json=body, headers={"Authorization": f"Bearer {second}"}, timeout=30
        )
        assert refused.status_code == 400, refused.text
        logged = '"status":400,"error":"invalid_value","field":"input"'
        until(lambda: logged in said.read_text(), 20)  # the log is written after the answer
        assert second not in said.read_text()
        keys.write_text("")
        until(lambda: status(second) == 401, 20)


def test_a_stop_under_load_fails_no_request(tmp_path: Path, server: serve.RunningServer) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    argv = [*ARGV, "gateway", "--url", server.urls.grpc, "--port", "0", "--json", "--drain", "2"]
    env = {**os.environ, **own(tmp_path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as gateway:
        assert gateway.stdout is not None
        url = json.loads(gateway.stdout.readline())["url"]
        port = url.rpartition(":")[2]
        load = [sys.executable, "-c", LOAD, port, "30"]
        clients = [
            subprocess.Popen(load, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(8)
        ]
        until(lambda: requests.get(f"{url}/metrics").text.count('status="200"') >= 1)
        time.sleep(1.5)
        slow = threading.Thread(target=lambda: answers.append(post(url, ["x"] * 8, "slow").status_code))
        answers: list[int] = []
        gateway.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        health = requests.get(f"{url}/health", timeout=10)
        assert (health.status_code, health.headers["connection"]) == (503, "close")
        time.sleep(1.0)
        slow.start()  # two seconds of work, which begin just before the gateway stops to listen
        assert gateway.wait(30) == 0
        slow.join(10)
        assert gateway.stderr is not None
        assert gateway.stderr.read() == b""
    results = [client.communicate(timeout=40) for client in clients]
    assert answers == [200]
    counts = [tuple(map(int, out.split())) for out, _ in results]
    assert sum(failed for _, failed in counts) == 0, "".join(err for _, err in results)
    assert sum(count for count, _ in counts) > 100


def test_an_address_that_others_reach_without_keys_is_a_warning(
    tmp_path: Path, server: serve.RunningServer
) -> None:
    with running(tmp_path, server.urls.grpc, "--host", "0.0.0.0"):
        assert "warning: everybody who reaches" in (tmp_path / "stderr").read_text()


def test_the_id_of_a_request_reaches_tritons_log(tmp_path: Path, repository: Path) -> None:
    with serve.start(repository, free("quick", verbose=True)) as triton:
        with running(tmp_path, triton.urls.grpc) as url:
            headers = {"x-request-id": "an-id-of-the-client"}
            assert post(url, "x", headers=headers).headers["x-request-id"] == "an-id-of-the-client"
        assert "an-id-of-the-client" in triton.log.read_text(errors="replace")
