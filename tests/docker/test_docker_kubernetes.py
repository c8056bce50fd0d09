"""The pods of ``trb export kubernetes`` as containers: their arguments, user, rights, volumes and names.

A kubelet could not be had: Docker gives each container what the pod states of it.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.conftest import BASE
from tests.docker.test_docker_gateway import embedded
from tests.support import serve_repository as made
from tests.support.command_line import expanded
from tests.support.deployments import KEY
from triton_repo_builder.base import process
from triton_repo_builder.ship.container_image import wheels as lists
from triton_repo_builder.ship.targets import export

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
TAG = "trb-test:pods"
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


@pytest.fixture(scope="module")
def image(client: Any, wheels: Path, minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One image for server, gateway and smoke Job, with the repository."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *lists.pinned(gateway=True)]
    process.run([*pip, "--find-links", str(wheels), "-d", str(wheels)], timeout=600)
    folder = tmp_path_factory.mktemp("image")
    arguments = ("--gateway", "--base", BASE, "--repository", str(minilm), "--wheels", str(wheels))
    said = made.trb(folder, "image", "build", *arguments, "--tag", TAG)
    assert said.returncode == 0, said.stderr
    yield TAG
    client.images.remove(TAG, force=True)


@pytest.fixture(scope="module")
def files(image: str, minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The rendered objects."""
    folder = tmp_path_factory.mktemp("deployment")
    shutil.copytree(minilm, folder / "model_repository")
    (folder / "admin_key").write_text(KEY)
    (folder / "admin_key").chmod(0o600)
    (folder / "deploy.toml").write_text(
        f'name = "minilm"\n[repository]\nsource = "image"\n[server]\nimage = "{image}"\nmemory = "1GiB"\n'
        f'[gateway]\nimage = "{image}"\n'
    )
    contents = export.render("kubernetes", export.read(folder / "deploy.toml")).contents
    return {path: yaml.safe_load(text) for path, text in contents.items() if path.endswith(".yaml")}


@pytest.fixture
def network(client: Any) -> Iterator[Any]:
    made_ = client.networks.create("trb-test-pods", driver="bridge")
    yield made_
    made_.remove()


def count(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


@contextmanager
def pod(client: Any, network: Any, spec: Any, names: Sequence[str] = ()) -> Iterator[Any]:
    """The only container of a pod; Services are names in the network."""
    (container,) = spec["containers"]
    security, user = container["securityContext"], spec["securityContext"]["runAsUser"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    volumes = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}
    mounts = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
    shm = mounts.pop("/dev/shm", {"sizeLimit": "64Mi"})
    variables = {each["name"]: each.get("value", KEY) for each in container.get("env", ())}
    running = client.containers.create(
        container["image"],
        expanded(container["args"], variables),
        environment=variables,
        user=f"{user}:{user}",
        read_only=True,
        cap_drop=security["capabilities"]["drop"],
        security_opt=["no-new-privileges"],
        shm_size=count(shm["sizeLimit"]),
        mem_limit=count(container["resources"]["limits"]["memory"]),
        tmpfs={path: f"size={count(each['sizeLimit'])},mode=1777" for path, each in mounts.items()},
        ports={f"{port['containerPort']}/tcp": ("127.0.0.1", None) for port in container.get("ports", ())},
        healthcheck={"test": ["NONE"]},
    )
    try:
        network.connect(running, aliases=list(names))
        running.start()
        running.reload()
        yield running
    finally:
        running.remove(force=True)


def url(running: Any, port: int) -> str:
    running.reload()
    bound = running.attrs["NetworkSettings"]["Ports"][f"{port}/tcp"]
    return f"http://127.0.0.1:{bound[0]['HostPort']}"


def spec(files: dict[str, Any], path: str) -> Any:
    return files[path]["spec"]["template"]["spec"]


def ready(running: Any, probe: Any, port: int) -> None:
    """Wait as the startup probe does."""
    path = probe["httpGet"]["path"]

    def up() -> bool:
        running.reload()
        assert running.status == "running", running.logs().decode(errors="replace")[-4000:]
        return made.answers(f"{url(running, port)}{path}")

    made.until(up, 180)


def answered(running: Any) -> float:
    """Requests that a server has answered."""
    with urllib.request.urlopen(f"{url(running, 8002)}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    start = 'nv_inference_request_success{model="minilm",'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def test_pods_run_with_the_rights_that_they_state(client: Any, network: Any, files: dict[str, Any]) -> None:
    """Two replicas, a gateway that spreads requests over both, the smoke Job, and a stop within the grace."""
    server = spec(files, "base/deployment.yaml")
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(pod(client, network, server, ("minilm", "minilm-headless"))) for _ in range(2)
        ]
        for each in replicas:
            ready(each, server["containers"][0]["startupProbe"], 8000)
            assert each.exec_run(["id", "-u"]).output == b"1000\n"
            for path in ("/models/x", "/opt/x", "/x"):
                assert b"Read-only file system" in each.exec_run(["touch", path]).output
        refused = urllib.request.Request(f"{url(replicas[0], 8000)}/v2/repository/index", b"{}")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(refused, timeout=30)

        gateway_spec = spec(files, "base/gateway-deployment.yaml")
        gateway = stack.enter_context(pod(client, network, gateway_spec, ("minilm-gateway",)))
        ready(gateway, gateway_spec["containers"][0]["readinessProbe"], 9000)
        before = [answered(each) for each in replicas]
        made.until(
            lambda: (
                len(embedded(url(gateway, 9000), "a text")) == 384
                and all(answered(each) > old for each, old in zip(replicas, before, strict=True))
            ),
            60,
        )

        with pod(client, network, spec(files, "components/smoke/job.yaml")) as job:
            assert job.wait(timeout=300)["StatusCode"] == 0, job.logs().decode(errors="replace")

        words = server["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert replicas[0].exec_run([words[0], "0"]).exit_code == 0
        for each, stated in ((gateway, gateway_spec), (replicas[0], server)):
            each.stop(timeout=stated["terminationGracePeriodSeconds"])
            assert each.wait()["StatusCode"] == 0, each.logs().decode(errors="replace")[-4000:]


def test_golden_cases_of_a_canary(client: Any, network: Any, files: dict[str, Any]) -> None:
    """The Job of a Rollout's step, with a stable server and a canary."""
    server = spec(files, "base/deployment.yaml")
    metrics = files["components/rollout/analysis-traffic.yaml"]["spec"]["metrics"]
    job_spec = metrics[0]["provider"]["job"]["spec"]["template"]["spec"]
    with (
        pod(client, network, server, ("minilm",)) as stable,
        pod(client, network, server, ("minilm-canary",)) as canary,
    ):
        for each in (stable, canary):
            ready(each, server["containers"][0]["startupProbe"], 8000)
        with pod(client, network, job_spec) as job:
            assert job.wait(timeout=300)["StatusCode"] == 0, job.logs().decode(errors="replace")
            assert job.logs().decode().count("OK") == 2
        assert min(answered(stable), answered(canary)) >= 200, json.dumps(metrics[1])
