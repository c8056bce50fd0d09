"""Every command line that the export for Kubernetes renders, run for real: servers, gateway, smoke, fetch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import command_line, deployments, s3_server, small_registry
from tests.support.cli import trb
from tests.support.command_line import Started, expanded, started
from tests.support.deployments import KEY, OCI, SCALED, gateway, server
from tests.support.serve_repository import answers, files, free_port, until
from triton_repo_builder.ship.targets import export

READY = "/v2/models/sentiment/ready"


def rendered(folder: Path, source: str, tables: str, target: str = "kubernetes") -> dict[str, str]:
    deployment = deployments.read(folder, source=source, tables=tables)
    return {path: text.decode() for path, text in export.render(target, deployment).contents.items()}


def pod(text: str) -> Any:
    return yaml.safe_load(text)["spec"]["template"]["spec"]


def command(text: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """Command line of the only container of a Deployment."""
    (container,) = pod(text)["containers"]
    assert "command" not in container  # the image's entrypoint runs its arguments as they are
    return expanded(container["args"], {"TRB_ADMIN_KEY": KEY, **(variables or {})})


def run(words: Sequence[str], **changes: Any) -> subprocess.CompletedProcess[str]:
    """A command as a container of the gateway's image has it: with ``trb`` on PATH."""
    return subprocess.run(
        words, capture_output=True, text=True, timeout=240, check=False, env=environment(**changes)
    )


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **changes}


@pytest.fixture
def program(tmp_path: Path) -> Callable[[Sequence[str]], list[str]]:
    """Puts this checkout's ``trb`` in place of the image's."""
    script = tmp_path / "bin" / "trb"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m triton_repo_builder "$@"\n')
    script.chmod(0o755)
    return lambda words: [
        re.sub(r"\btrb (?=smoke)", f"{script} ", word) if word != "trb" else str(script) for word in words
    ]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files for a repository in a registry, with a gateway."""
    return rendered(tmp_path_factory.mktemp("exports"), OCI, gateway() + SCALED)


@pytest.fixture(scope="module")
def running(exports: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """The server of the base, for those that call it."""
    words = command(exports["base/deployment.yaml"])
    with started(words, deployments.GOLDEN, tmp_path_factory.mktemp("server")) as server_:
        server_.ready(READY)
        yield server_


@pytest.mark.server
@pytest.mark.parametrize("path", ["base/deployment.yaml", "overlays/canary/deployment.yaml"])
def test_the_server(exports: Mapping[str, str], path: str, tmp_path: Path) -> None:
    spec = pod(exports[path])
    probe = spec["containers"][0]["startupProbe"]["httpGet"]["path"]
    drain = int(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    with started(command(exports[path]), deployments.GOLDEN, tmp_path) as each:
        # The platform counts the time of preStop, too.
        grace = spec["terminationGracePeriodSeconds"] - drain
        command_line.check(each, deployments.GOLDEN, probe, KEY, grace)


def test_other_exports_have_the_same_command_line(exports: Mapping[str, str], tmp_path: Path) -> None:
    """So the server above stands for them. Those of charts are compared in test_kubernetes_objects.py."""
    image = rendered(tmp_path, "image", server(more='release = "26.07"'))
    assert command(image["base/deployment.yaml"]) == command(exports["base/deployment.yaml"])


@pytest.mark.server
def test_a_server_of_the_embedded_release_has_summaries(tmp_path: Path) -> None:
    """An analysis reads p99 from them."""
    words = command(rendered(tmp_path, "image", server())["base/deployment.yaml"])
    assert "--metrics-config=summary_latencies=true" in words
    with started(words, deployments.GOLDEN, tmp_path) as each:
        each.ready(READY)
        with urllib.request.urlopen(each.metrics, timeout=30) as page:
            text = page.read().decode()
        assert re.search(r'nv_inference_request_summary_us\{model="sentiment",[^}]*quantile="0.99"', text)
        command_line.check(each, deployments.GOLDEN, READY, KEY, 45)


@pytest.mark.server
def test_a_bucket_is_read_by_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.use(monkeypatch)
    with s3_server.running(tmp_path) as address:
        place = f"s3://http://{address}/{s3_server.BUCKET}/sentiment"
        trb("push", "--force", place, deployments.GOLDEN)  # without the wheel that git does not keep
        revision = deployments.bucket("s3").partition("@")[2]
        exported = rendered(tmp_path, f"{place}@{revision}", "")
        (container,) = pod(exported["base/deployment.yaml"])["containers"]
        words = command(exported["base/deployment.yaml"])
        (variable,) = (each for each in container["env"] if each["name"] == "TRITON_AWS_MOUNT_DIRECTORY")
        (tmp_path / "mounted").mkdir()
        variables = {variable["name"]: str(tmp_path / "mounted"), **s3_server.CREDENTIALS}
        with started(words, deployments.GOLDEN, tmp_path, environment=variables) as each:
            command_line.check(each, deployments.GOLDEN, READY, KEY, 45)


@pytest.mark.server
def test_the_gateway(
    exports: Mapping[str, str],
    running: Started,
    program: Callable[[Sequence[str]], list[str]],
    tmp_path: Path,
) -> None:
    port = free_port()
    words = [
        word.replace("0.0.0.0", "127.0.0.1")
        .replace("--port=9000", f"--port={port}")
        .replace("dns:///sentiment-headless:8001", f"dns:///{running.grpc}")
        .replace("--repo=/models", f"--repo={deployments.GOLDEN}")
        .replace("--drain=10", "--drain=0.1")
        for word in program(command(exports["base/gateway-deployment.yaml"]))
    ]
    assert str(port) in str(words) and running.grpc in str(words)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment())
    try:
        until(lambda: process.poll() is not None or answers(f"http://127.0.0.1:{port}/health"), 120)
        assert process.poll() is None, (tmp_path / "log").read_text()
        process.send_signal(signal.SIGTERM)
        assert (
            process.wait(pod(exports["base/gateway-deployment.yaml"])["terminationGracePeriodSeconds"]) == 0
        )
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.server
def test_the_smoke_job(
    exports: Mapping[str, str], running: Started, program: Callable[[Sequence[str]], list[str]]
) -> None:
    """Beside another client, as after a sync of a service that is used."""
    words = here(program(command(exports["components/smoke/job.yaml"])), running)
    _, case, _ = command_line.golden_case(deployments.GOLDEN)
    ended = threading.Event()

    def other() -> None:
        while not ended.wait(0.01):
            running.ask("/v2/models/sentiment/infer", {"inputs": case["inputs"]})

    client = threading.Thread(target=other)
    client.start()
    try:
        done = run([*words, f"--grpc-url={running.grpc}"])
        alone = run([*words[:-1], f"--grpc-url={running.grpc}"])
    finally:
        ended.set()
        client.join()
    assert done.returncode == 0 and "OK" in done.stdout, done.stdout + done.stderr
    assert words[-1] == "--live" and "is another client using this server?" in alone.stdout
    wrong = run([*words, f"--grpc-url=127.0.0.1:{free_port()}"])
    assert wrong.returncode != 0


@pytest.mark.server
def test_golden_cases_are_enough_traffic_for_a_step(
    exports: Mapping[str, str], running: Started, program: Callable[[Sequence[str]], list[str]]
) -> None:
    """Each version of a canary gets the requests of a step, and none of them counts as a failure."""
    golden = yaml.safe_load(exports["components/rollout/analysis-traffic.yaml"])["spec"]["metrics"][0]
    (container,) = golden["provider"]["job"]["spec"]["template"]["spec"]["containers"]
    words = here(program(container["args"]), running)
    words[2] = words[2].replace("--clients", f"--grpc-url={running.grpc} --clients")
    before = counted(running)
    done = run(words)
    assert done.returncode == 0 and done.stdout.count("OK") == 2, done.stdout + done.stderr
    after = counted(running)
    assert after["success"] - before["success"] >= 2 * 200
    assert after["failure"] == before["failure"]


@pytest.mark.server
def test_readiness_of_a_deployment_without_a_gateway(running: Started, tmp_path: Path) -> None:
    words = here(command(rendered(tmp_path, "image", server())["components/smoke/job.yaml"]), running)
    assert run(words).returncode == 0
    assert run([word.replace("/v2/models/sentiment/", "/v2/models/other/") for word in words]).returncode != 0


def test_the_repository_is_pulled(tmp_path: Path, program: Callable[[Sequence[str]], list[str]]) -> None:
    """Twice, as after a restart of the pod's node."""
    with small_registry.running(tmp_path) as address:
        place = f"oci://{address}/models/sentiment"
        told = trb("push", "--force", f"{place}:1", deployments.GOLDEN)
        pinned = re.search(r"for ever: (\S+)", told)
        assert pinned
        (fetch,) = pod(rendered(tmp_path, pinned[1], gateway())["base/deployment.yaml"])["initContainers"]
        for _ in range(2):
            done = run(fetched(program(fetch["args"]), tmp_path), **variables(fetch, tmp_path))
            assert done.returncode == 0, done.stderr
        assert files(tmp_path / "repository" / "models") == files(deployments.GOLDEN)


def test_the_repository_is_cloned(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    deployments.shutil.copytree(deployments.GOLDEN, origin / "team" / "models")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (
        ("init", "-q"),
        ("add", "."),
        (*identity, "commit", "-q", "-m", "first"),
        ("rm", "-q", "-r", "team"),
        (*identity, "commit", "-q", "-m", "second"),
    ):
        subprocess.run(["git", "-C", origin, *words], check=True)
    first = subprocess.run(
        ["git", "-C", origin, "rev-parse", "HEAD~1"], check=True, capture_output=True, text=True
    ).stdout.strip()
    source = f"git+file://{origin}@{first}#team/models"
    tables = '[kubernetes]\nfetch_image = "registry.example/git:2.47"\n'
    (fetch,) = pod(rendered(tmp_path, source, tables)["base/deployment.yaml"])["initContainers"]
    for _ in range(2):
        done = run(fetched(fetch["args"], tmp_path), **variables(fetch, tmp_path))
        assert done.returncode == 0, done.stderr
    assert files(tmp_path / "repository") == [
        "models",
        *(f"models/{each}" for each in files(deployments.GOLDEN)),
    ]


def test_the_repository_is_copied_for_the_gateway(tmp_path: Path) -> None:
    exported = rendered(tmp_path, "image", server() + gateway())
    (fetch,) = pod(exported["base/gateway-deployment.yaml"])["initContainers"]
    (tmp_path / "repository").mkdir()
    words = [
        word.replace("/models", str(deployments.GOLDEN)) if word == "/models" else word
        for word in fetch["args"]
    ]
    assert run(fetched(words, tmp_path)).returncode == 0
    assert files(tmp_path / "repository" / "models") == files(deployments.GOLDEN)


def here(words: Sequence[str], running: Started) -> list[str]:
    """A command that calls the Services, and reads /models."""
    return [
        re.sub(r"http://sentiment(-canary)?:8000", running.http, word).replace(
            "/models --", f"{deployments.GOLDEN} --"
        )
        if word != "/models"
        else str(deployments.GOLDEN)
        for word in words
    ]


def fetched(words: Sequence[str], tmp: Path) -> list[str]:
    """A command that fetches into the volume."""
    (tmp / "repository").mkdir(exist_ok=True)
    return [word.replace("/repository/", f"{tmp}/repository/") for word in words]


def variables(container: Mapping[str, Any], tmp: Path) -> dict[str, str]:
    """Variables of an init container; its home is the test's, since /tmp is shared here."""
    named = {each["name"]: each["value"] for each in container["env"]}
    return {**named, "HOME": str(tmp)}


def counted(running: Started) -> dict[str, float]:
    """Requests to the endpoint, by their end."""
    import urllib.request

    with urllib.request.urlopen(running.metrics, timeout=30) as response:
        text = response.read().decode()
    return {
        kind: sum(
            float(value)
            for value in re.findall(
                rf'nv_inference_request_{kind}{{[^}}]*model="sentiment"[^}}]*}} (\S+)', text
            )
        )
        for kind in ("success", "failure")
    }
