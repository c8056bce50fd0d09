"""The gateway of an image beside the server's container; ``trb serve --openai`` in front of a container."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docker.test_docker_serve import Serve, docker
from tests.support import serve_repository as made
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_json

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # two images are built for the first test
GATEWAY_PORT = "9000/tcp"
TRITON_PORT = "8000/tcp"


def embedded(url: str, text: str) -> list[float]:
    """An embedding by OpenAI's route."""
    body = json.dumps({"model": "minilm", "input": text}).encode()
    request = urllib.request.Request(f"{url}/v1/embeddings", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        vector: list[float] = json.load(answer)["data"][0]["embedding"]
    return vector


def answers(url: str) -> bool:
    """Whether a gateway gives embeddings yet."""
    try:
        return bool(embedded(url, "hello"))
    except OSError:
        return False


def test_two_containers_of_one_image_answer_openai_clients(client: Any, gateway_image: str) -> None:
    image = gateway_image
    free = dict.fromkeys((GATEWAY_PORT, TRITON_PORT), ("127.0.0.1", None))
    server = client.containers.run(image, detach=True, shm_size="256m", ports=free)
    gateway = None
    try:
        gateway = client.containers.run(
            image,
            ["trb", "gateway", "--host", "0.0.0.0", "--repo", "/models"],
            detach=True,
            network_mode=f"container:{server.id}",
            healthcheck={"test": ["NONE"]},
        )
        server.reload()
        bound = server.attrs["NetworkSettings"]["Ports"]
        urls = {port: f"http://127.0.0.1:{bound[port][0]['HostPort']}" for port in free}
        made.until(lambda: answers(urls[GATEWAY_PORT]), 90)
        request = encode_json({"TEXT": np.array([["a text"]], dtype=object)})
        served = HttpClient(urls[TRITON_PORT].removeprefix("http://")).infer("minilm", request)
        # JSON has the shortest text of each float32; read as a float64 it is another number.
        vector = np.asarray(embedded(urls[GATEWAY_PORT], "a text"), np.float32)
        assert vector.tolist() == served["embedding"][0].tolist()
        gateway.stop(timeout=60)
        assert gateway.wait()["StatusCode"] == 0
    finally:
        for container in (gateway, server):
            if container is not None:
                container.remove(force=True)


def test_serve_openai_in_front_of_a_container(tmp_path: Path, slim: str, minilm: Path) -> None:
    running = Serve(tmp_path, minilm, *docker(slim), "--openai", "--openai-port=0", "--json")
    try:
        about = running.ready()
        url = about["urls"]["openai"]
        assert len(embedded(url, "a text")) == 384
        assert running.over(signal.SIGTERM) == 0
        assert not answers(url)
    finally:
        running.process.kill()
