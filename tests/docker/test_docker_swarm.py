"""``trb export swarm`` on a swarm of two machines, under load: updates, failures, a dead machine.

The counts of docs/deploy-swarm.md: pytest -m docker tests/docker/test_docker_swarm.py --log-cli-level=INFO
"""

from __future__ import annotations

import logging
import queue
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import unavailable

from tests.docker import swarm
from tests.docker.conftest import image
from tests.docker.load import Counts, load
from tests.docker.swarm import Swarm
from tests.support import serve_repository as made
from tests.support.cli import call
from triton_repo_builder.base import process
from triton_repo_builder.ship.targets import export
from triton_repo_builder.ship.targets import swarm as swarm_target

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
LOG = logging.getLogger("swarm")
NAME = "trb"
SERVICE = f"{NAME}_{NAME}"
REPLICAS = 3
CLIENTS = 3
"""Clients of each kind, which send one request after the other."""
HTTP, GRPC = 8000, 8001
MODEL = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.05)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() * @VERSION@)]
            )
            for request in requests
        ]
"""
IDLE = "#!/bin/sh\nexec sleep 100000\n"
"""A tritonserver that never gets healthy."""


@dataclass(frozen=True)
class Stack:
    """A stack on a swarm: its folder, and the images that it may run."""

    swarm: Swarm
    folder: Path
    environment: dict[str, str]

    def deploy(self, tag: str) -> None:
        """Export with this image, and deploy."""
        file = self.folder / "deploy.toml"
        file.write_text(re.sub(r"(?m)^image = .*$", f'image = "trb-test:{tag}"', file.read_text(), count=1))
        done = call("export", "swarm", cwd=self.folder)
        assert done.returncode == 0, done.stderr
        self.swarm.deploy(self.folder / "deploy" / "swarm" / "stack.yml", NAME, self.environment)

    def until(self, condition: Any, seconds: float = 240) -> None:
        self.swarm.until(condition, SERVICE, seconds)

    def update(self, tag: str, state: str) -> None:
        """Deploy an image and wait until its update ends in this state."""
        before = self.swarm.manager.api.inspect_service(SERVICE)["Version"]["Index"]
        self.deploy(tag)
        self.until(
            lambda: (
                self.swarm.manager.api.inspect_service(SERVICE)["Version"]["Index"] > before
                and self.swarm.update(SERVICE) == state
            )
        )
        self.until(lambda: len(self.swarm.tasks(SERVICE)) == REPLICAS)

    def load(self) -> Any:
        """Load through the first machine's Traefik."""
        return load(
            self.swarm.machines[0].address, http_port=HTTP, grpc_port=GRPC, model="sleeper", clients=CLIENTS
        )


@pytest.fixture(scope="module")
def stack(
    client: Any,
    slim: str,
    traefik_image: str,
    prometheus_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """A swarm whose machines have two versions of an image, one that hangs, and one whose model fails."""
    if reason := swarm.obstacle():
        unavailable(reason)
    folder = tmp_path_factory.mktemp("swarm")
    tags = {"first": MODEL.replace("@VERSION@", "1"), "second": MODEL.replace("@VERSION@", "2")}
    tags["broken"] = made.RAISES
    for tag, model in tags.items():
        made.python(folder / tag, "sleeper", model, dims="-1")
        files = {
            str(path.relative_to(folder / tag)): path.read_bytes()
            for path in sorted((folder / tag).rglob("*"))
            if path.is_file()
        }
        dockerfile = f"FROM {slim}\nCOPY --chown=1000:1000 sleeper /models/sleeper\n"
        image(client, f"trb-test:{tag}", dockerfile, files)
    dockerfile = "FROM trb-test:first\nCOPY tritonserver /opt/tritonserver/bin/tritonserver\n"
    image(client, "trb-test:idle", dockerfile, {"tritonserver": IDLE.encode()})
    names = [f"trb-test:{tag}" for tag in (*tags, "idle")]
    archive = folder / "images.tar"
    process.run(["docker", "save", "--output", str(archive), *names, traefik_image, prometheus_image])
    for name in names:
        client.images.remove(name)
    made_with = ("--name", NAME, "--image", names[0], "--source", "image")
    done = call("deploy", "init", "first", *made_with, cwd=folder)
    assert done.returncode == 0, done.stderr
    settle(folder / "deploy.toml")
    with swarm.running(folder, archive) as machines:
        archive.unlink()
        environment = {"TRAEFIK_IMAGE": traefik_image, "PROMETHEUS_IMAGE": prometheus_image}
        yield Stack(machines, folder, environment)


def settle(file: Path) -> None:
    """Set what differs from the defaults, so that tests take less time."""
    values = {
        "revision": "",
        "host": "0.0.0.0",
        "replicas": REPLICAS,
        "cpus": 0.5,
        "memory": "512MiB",
        "start": "20s",
        "drain": "5s",
        "stop": "10s",
    }
    text = file.read_text()
    for key, value in values.items():
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        text, count = re.subn(rf"(?m)^(# )?{key} = .*$", f"{key} = {shown}", text, count=1)
        assert count == 1, key
    file.write_text(text)


def lost(counts: Counts) -> list[str]:
    return [f"{kind} sent at {sent:.2f} s: {reason}" for kind, sent, reason in counts.lost]


def test_replicas_are_spread_over_both_machines(stack: Stack) -> None:
    stack.deploy("first")
    stack.until(lambda: len(stack.swarm.tasks(SERVICE)) == REPLICAS)
    nodes = {machine.node for machine in stack.swarm.machines}
    assert stack.swarm.spread(SERVICE).keys() == nodes
    stack.until(lambda: len(stack.swarm.tasks(f"{NAME}_traefik")) == len(nodes))
    for machine in stack.swarm.machines:
        with load(
            machine.address, http_port=HTTP, grpc_port=GRPC, model="sleeper", clients=CLIENTS
        ) as counts:
            made.until(lambda: min(counts.answers["HTTP"], counts.answers["gRPC"]) >= 30)
        assert not counts.lost, lost(counts)
    # Both kinds of requests reach each replica.
    shared = export.read(stack.folder / "deploy.toml").shared_memory
    asked = 0
    for machine in stack.swarm.machines:
        for container in machine.client.containers.list(filters={"name": f"{SERVICE}."}):
            asked += 1
            metrics = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8002/metrics').read().decode())"
            _, page = container.exec_run(["python3", "-I", "-c", metrics])
            (line,) = [
                each
                for each in page.decode().splitlines()
                if each.startswith("nv_inference_request_success{")
            ]
            assert float(line.rsplit(" ", 1)[1]) > 0
            _, said = container.exec_run(["sh", "-c", "id -u; df --output=size -B1 /dev/shm"])
            assert said.decode().split() == ["1000", "1B-blocks", str(shared)]
            code, said = container.exec_run(["touch", "/x"])
            assert code == 1 and b"Read-only file system" in said
    assert asked == REPLICAS


def test_streams_and_large_requests_pass(stack: Stack) -> None:
    """Traefik keeps only small requests to send again, and none of a stream, whose end it would await."""
    import tritonclient.grpc as triton

    def tensor(count: int) -> triton.InferInput:
        given = triton.InferInput("X", [1, count], "FP32")
        given.set_data_from_numpy(np.ones((1, count), np.float32))
        return given

    client = triton.InferenceServerClient(f"{stack.swarm.machines[0].address}:{GRPC}")
    large = 4 * swarm_target.REPLAY_LIMIT // np.dtype(np.float32).itemsize
    assert client.infer("sleeper", [tensor(large)]).as_numpy("Y").shape == (1, large)
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    for count in (2, 3):  # the second one is sent after the first one's answer
        client.async_stream_infer("sleeper", [tensor(count)])
        assert answers.get(timeout=30).as_numpy("Y").shape == (1, count)
    client.stop_stream()


def test_a_rolling_update_loses_no_request(stack: Stack) -> None:
    with stack.load() as counts:
        made.until(lambda: sum(counts.answers.values()) >= 50)
        stack.update("second", "completed")
        made.until(lambda: counts.values[2.0] >= 100)
    LOG.info("rolling update of %d replicas: %s", REPLICAS, counts)
    assert not counts.lost, lost(counts)
    assert counts.values.keys() == {1.0, 2.0}


@pytest.mark.parametrize("tag", ["idle", "broken"])
def test_a_bad_image_and_a_bad_model_go_back_by_themselves(stack: Stack, tag: str) -> None:
    with stack.load() as counts:
        made.until(lambda: sum(counts.answers.values()) >= 50)
        stack.update(tag, "rollback_completed")
        assert f"trb-test:{tag}" in stack.swarm.failed(SERVICE)
        seen = sum(counts.answers.values())
        made.until(lambda: sum(counts.answers.values()) >= seen + 50)
    LOG.info("%s: %s", tag, counts)
    assert not counts.lost, lost(counts)
    assert counts.values.keys() == {2.0}


def test_a_dead_machine_costs_the_requests_under_way(stack: Stack) -> None:
    """The last one: the second machine does not come back."""
    manager, worker = stack.swarm.machines
    node = manager.node
    with stack.load() as counts:
        made.until(lambda: sum(counts.answers.values()) >= 50)
        died = worker.die() - counts.started
        stack.until(lambda: stack.swarm.spread(SERVICE) == {node: REPLICAS})
        replaced = counts.now
        seen = sum(counts.answers.values())
        made.until(lambda: sum(counts.answers.values()) >= seen + 100)
    LOG.info(
        "dead machine: %s; %d replicas again after %.0f s; %s",
        counts,
        REPLICAS,
        replaced - died,
        lost(counts),
    )
    # HTTP has a connection for each request, so only those that the machine had are lost. A gRPC connection
    # to it is used until a ping finds it dead; then Traefik asks another machine, so no answer is missing.
    assert Counter(kind for kind, _, _ in counts.lost)["HTTP"] <= CLIENTS, lost(counts)
    assert counts.lost_after(died) == [], lost(counts)
    assert "gRPC" not in {kind for kind, _, _ in counts.lost}, lost(counts)
