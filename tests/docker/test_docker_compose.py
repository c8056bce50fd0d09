"""``trb export compose``, started by a real Docker Compose: every part of the stack, and its end."""

from __future__ import annotations

import http.client
import json
import select
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docker import compose
from tests.docker.compose import Project
from tests.docker.test_docker_gateway import answers, embedded
from tests.support import serve_repository as made
from tests.support.cli import call, kind
from tests.support.prometheus import Prometheus
from tests.support.stacks import deployment
from triton_repo_builder.base.errors import Code
from triton_repo_builder.ship.targets import export
from triton_repo_builder.ship.targets.export import render

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
NAME = "trb-compose"
LIMIT = 1 << 20
TEXTS = ["a text", "another, longer text", "hello"]
UNDER_WAY = 8
"""Requests of each kind while the stack is stopped."""
SLOW = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(2)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())]
            )
            for request in requests
        ]
"""


@dataclass(frozen=True)
class Stack:
    """A stack that runs, and where."""

    project: Project
    file: Path
    ports: dict[str, int]

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"


SOURCES = {
    "folder": "",
    "image": 'source = "image"',
    "bucket": f'source = "s3://127.0.0.1:9000/models/bert@sha256:{"0" * 64}"',
    "registry": f'source = "oci://127.0.0.1:5000/bert@sha256:{"0" * 64}"',
    "git": f'source = "git+https://host.example/models.git@{"1" * 40}#model_repository"',
}


@pytest.mark.parametrize("source", SOURCES)
def test_compose_takes_the_file_of_every_source(tmp_path: Path, source: str) -> None:
    compose.need()
    for name in ("cert.pem", "key.pem", "keys"):
        (tmp_path / name).write_text("a" * 32)
        (tmp_path / name).chmod(0o600)
    text = f"""[server]
image = "own:1"
replicas = 1
gpus = 1
[gateway]
image = "gate:1"
keys = "keys"
[exposure]
host = "::1"
tls_certificate = "cert.pem"
tls_key = "key.pem"
[repository]
{SOURCES[source]}
"""
    made_of = deployment(tmp_path, text)
    for path, content in render("compose", made_of).contents.items():
        (made_of.output / path).parent.mkdir(parents=True, exist_ok=True)
        (made_of.output / path).write_bytes(content)
    project = Project(made_of.output, "bert", {})
    shown = json.loads(project.run("--profile", "*", "config", "--format", "json"))
    servers = shown["services"]["bert"], shown["services"]["bert-canary"]
    for server in servers:
        assert server["deploy"]["resources"]["reservations"]["devices"][0]["driver"] == "nvidia"
        # A variable that Compose replaced would be empty.
        assert "$$(tr -d" in server["command"][2] and "$$@" in server["command"][2]


@pytest.fixture(scope="module")
def stack(
    client: Any,
    slim: str,
    gateway_image: str,
    traefik_image: str,
    prometheus_image: str,
    minilm: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """Two replicas of minilm and of a model that takes two seconds, with everything around them."""
    compose.need()
    folder = tmp_path_factory.mktemp("compose")
    shutil.copytree(minilm, folder / "model_repository")
    made.python(folder / "model_repository", "slow", SLOW)
    images = ("--image", slim, "--gateway-image", gateway_image)
    done = call("deploy", "init", "--name", NAME, *images, cwd=folder)
    assert done.returncode == 0, done.stderr
    ports = compose.settled(folder / "deploy.toml", {"body_limit": "1MiB", "drain": "2s"})
    done = call("export", "compose", cwd=folder)
    assert done.returncode == 0, done.stderr
    environment = {"TRAEFIK_IMAGE": traefik_image, "PROMETHEUS_IMAGE": prometheus_image}
    project = Project(folder / "deploy" / "compose", NAME, environment)
    try:
        project.run("up", "--detach", "--wait")
        yield Stack(project, folder / "deploy.toml", ports)
    finally:
        project.run("--profile", "*", "down", "--volumes", "--timeout", "1")
        assert not project.left(client)


def post(url: str, body: bytes, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    kinds = {
        "Content-Type": "application/json",
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, kinds), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def texts(values: list[str]) -> bytes:
    """A request of KServe V2."""
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [len(values), 1], "data": values}
    return json.dumps({"inputs": [tensor]}).encode()


def rows(answer: Any) -> Any:
    """The embeddings of an answer of KServe V2."""
    (output,) = [each for each in answer["outputs"] if each["name"] == "embedding"]
    return np.asarray(output["data"], np.float32).reshape(output["shape"])


def test_answers_through_traefik_and_the_gateway_are_the_servers_own(client: Any, stack: Stack) -> None:
    import tritonclient.grpc as triton

    servers = stack.project.addresses(client, NAME)
    assert len(servers) == 2
    path = "/v2/models/minilm/infer"
    own = [post(f"http://{address}:8000{path}", texts(TEXTS)) for address in servers]
    for status, answer in own:
        assert status == 200, answer
    expected = rows(own[0][1])
    for _ in range(4):  # both replicas
        status, answer = post(stack.url("http_port") + path, texts(TEXTS))
        assert status == 200, answer
        assert np.array_equal(rows(answer), expected)
        rest = triton.InferenceServerClient(f"127.0.0.1:{stack.ports['grpc_port']}")
        given = triton.InferInput("TEXT", [len(TEXTS), 1], "BYTES")
        given.set_data_from_numpy(np.array([[text] for text in TEXTS], dtype=object))
        assert np.array_equal(rest.infer("minilm", [given]).as_numpy("embedding"), expected)
        rest.close()
    # Traefik looks every five seconds whether the gateway is ready.
    made.until(lambda: answers(stack.url("gateway_port")))
    for text, row in zip(TEXTS, expected, strict=True):
        vector = np.asarray(embedded(stack.url("gateway_port"), text), np.float32)
        assert np.allclose(vector, row, atol=1e-6)


def test_administrative_apis_need_the_key(stack: Stack) -> None:
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    key = (stack.file.parent / "admin_key").read_text().strip()
    index = stack.url("http_port") + "/v2/repository/index"
    status, answer = post(index, b"{}")
    assert status != 200 and "restricted" in answer
    status, answer = post(index, b"{}", admin_key=key)
    assert status == 200 and {model["name"] for model in answer} >= {"minilm", "slow"}
    rest = triton.InferenceServerClient(f"127.0.0.1:{stack.ports['grpc_port']}")
    with pytest.raises(InferenceServerException, match="restricted"):
        rest.get_model_repository_index()
    assert rest.get_model_repository_index(headers={"triton-grpc-protocol-admin-key": key}).models
    rest.close()


def test_a_body_over_the_limit_is_refused_before_a_server_sees_it(stack: Stack) -> None:
    url = stack.url("http_port") + "/v2/models/minilm/infer"
    assert post(url, texts(["a" * (LIMIT - 1000)]))[0] == 200
    assert post(url, texts(["a" * LIMIT]))[0] == 413


def test_prometheus_scrapes_every_target_and_evaluates_the_rules(stack: Stack) -> None:
    prometheus = Prometheus(stack.url("prometheus_port"))

    def targets() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for each in prometheus.get("targets")["activeTargets"]:
            found.setdefault(each["labels"]["job"], set()).add(f"{each['scrapeUrl']} {each['health']}")
        return found

    expected = {
        "tritonserver": {f"http://{NAME}-{NAME}-{n}:8002/metrics up" for n in (1, 2)},
        "trb-gateway": {f"http://{NAME}-{NAME}-gateway-1:9000/metrics up"},
        "traefik": {"http://traefik:8080/metrics up"},
    }
    made.until(lambda: targets() == expected)

    def health() -> set[str]:
        groups = prometheus.get("rules")["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]}

    made.until(lambda: health() == {"ok"})
    assert prometheus.query("sum(nv_inference_request_success)")
    made.until(lambda: prometheus.query('traefik_service_requests_total{service="stable@file"}'))


def test_containers_have_only_the_rights_that_they_need(client: Any, stack: Stack) -> None:
    shared = export.read(stack.file).shared_memory
    key = (stack.file.parent / "admin_key").read_text().strip()
    assert key not in (stack.project.folder / "compose.yaml").read_text()
    for container in stack.project.containers(client):
        facts, host = container.attrs["Config"], container.attrs["HostConfig"]
        assert key not in json.dumps(container.attrs)
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], container.name
        assert "no-new-privileges:true" in host["SecurityOpt"]
        if container.status != "running":
            continue
        assert facts["User"] in ("1000:1000", "65534:65534")
        _, user = container.exec_run(["id", "-u"])
        assert user.decode().strip() == facts["User"].partition(":")[0]
        code, refusal = container.exec_run(["touch", "/x"])
        assert code == 1 and b"Read-only file system" in refusal
        bound = [each for ports in host["PortBindings"].values() for each in ports]
        assert {each["HostIp"] for each in bound} <= {"127.0.0.1"}
    for container in stack.project.containers(client, NAME):
        assert container.attrs["HostConfig"]["ShmSize"] == shared
        _, size = container.exec_run(["df", "--output=size", "--block-size=1", "/dev/shm"])
        assert int(size.split()[-1]) == shared


def test_a_stack_that_runs_keeps_its_ports_through_another_export(stack: Stack, tmp_path: Path) -> None:
    again = call("export", "compose", cwd=stack.file.parent)
    assert again.returncode == 0, again.stderr
    other = call("export", "compose", "-o", tmp_path / "other", cwd=stack.file.parent)
    assert kind(other.stderr) is Code.PORT_BUSY
    assert not (tmp_path / "other").exists()


def test_down_loses_no_request_under_way(client: Any, stack: Stack) -> None:
    """Traefik ends first, and waits for its requests; the servers answer what they have."""
    import tritonclient.grpc as triton

    body = json.dumps(
        {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    ).encode()
    connections = []
    for _ in range(UNDER_WAY):
        connection = http.client.HTTPConnection("127.0.0.1", stack.ports["http_port"], timeout=120)
        connection.request("POST", "/v2/models/slow/infer", body, {"Content-Type": "application/json"})
        connections.append(connection)
    done: list[Any] = []
    clients = []
    given = triton.InferInput("X", [1, 2], "FP32")
    given.set_data_from_numpy(np.array([[1, 2]], np.float32))
    own = [("grpc.use_local_subchannel_pool", 1)]
    for _ in range(UNDER_WAY):
        rest = triton.InferenceServerClient(f"127.0.0.1:{stack.ports['grpc_port']}", channel_args=own)
        rest.async_infer("slow", [given], lambda result, error: done.append((result, error)))
        clients.append(rest)
    (proxy,) = stack.project.addresses(client, "traefik")
    made.until(lambda: min(opened(proxy, "http"), opened(proxy, "grpc")) >= UNDER_WAY)
    down = stack.project.start("down")
    try:
        waiting = [each for each in connections if not select.select([each.sock], [], [], 0)[0]]
        assert waiting and len(done) < UNDER_WAY
        statuses = [connection.getresponse().status for connection in connections]
        assert statuses == [200] * UNDER_WAY
        made.until(lambda: len(done) == UNDER_WAY, 120)
        assert [error for _, error in done if error is not None] == []
    finally:
        said, _ = down.communicate(timeout=120)
    assert down.returncode == 0, said


def opened(address: str, entry_point: str) -> int:
    """Connections that clients have to an entry point of Traefik."""
    with urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    prefix = f'traefik_open_connections{{entrypoint="{entry_point}"'
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(prefix))
