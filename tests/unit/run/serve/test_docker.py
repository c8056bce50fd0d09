"""The Docker engine's decisions that need no daemon."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Model, Repository
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run import serve
from triton_repo_builder.run.options import ContainerOptions
from triton_repo_builder.run.serve import tracing
from triton_repo_builder.run.serve.background import log_follow
from triton_repo_builder.run.serve.docker import (
    cleanup,
    daemon,
    handle,
    images,
    settings,
    volume,
)
from triton_repo_builder.run.serve.docker.processes import ContainerStubProcesses
from triton_repo_builder.run.serve.embedded import install
from triton_repo_builder.run.serve.processes import shared_memory

MEBI = 1 << 20


def model(name: str, **config: Any) -> Model:
    return Model(name=name, path=Path(name), config=ModelConfig(config), text="", error=None, versions=(1,))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, f"nvcr.io/nvidia/tritonserver:{releases.newest().name}-py3"),
        ({"release": "25.03"}, "nvcr.io/nvidia/tritonserver:25.03-py3"),
        ({"image": "mine"}, "mine"),
        ({"image": "mine:1", "release": "25.03"}, "mine:1"),
    ],
)
def test_which_image(options: dict[str, str], name: str) -> None:
    assert images.choose(ContainerOptions(**options)) == name


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("write /var/lib/x: no space left on device", "the disk of the Docker daemon is full"),
        ("unauthorized: authentication required", "docker login nvcr.io"),
        ("manifest for x not found: manifest unknown", "is the name or tag right?"),
        ("dial tcp: lookup nvcr.io: no such host", "the registry nvcr.io cannot be reached"),
        ("net/http: TLS handshake timeout", "the registry nvcr.io cannot be reached"),
    ],
)
def test_why_an_image_cannot_be_pulled(said: str, words: str) -> None:
    error = images.failed("nvcr.io/nvidia/tritonserver:24.10-py3", said)
    assert error.code is Code.IMAGE_UNAVAILABLE
    assert words in str(error)
    assert said in str(error) or "disk" in str(error)


def test_the_bar_of_a_pull() -> None:
    assert images.bar(0, 10**9).endswith("  0%  0.0 of 1.0 GB")
    assert images.bar(10**9, 10**9).startswith("━" * images.BAR)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("('Connection aborted.', PermissionError(13, 'Permission denied'))", "usermod -aG docker"),
        (
            "('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))",
            "systemctl start docker",
        ),
        (
            "('Connection aborted.', ConnectionRefusedError(111, 'Connection refused'))",
            "no Docker daemon is running",
        ),
        ("Error: something new", "something new"),
    ],
)
def test_why_there_is_no_daemon(said: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    error = daemon.unreachable(Exception(said))
    assert error.code is Code.DAEMON_UNREACHABLE
    assert words in str(error)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("", ""),
        ("unix:///run/docker.sock", ""),
        ("tcp://127.0.0.1:2375", ""),
        ("tcp://gpu-7:2375", "gpu-7"),
        ("ssh://me@gpu-7", "gpu-7"),
    ],
)
def test_where_the_daemon_is(address: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    assert daemon.remote_host() == host


def docker(**info: Any) -> Any:
    return SimpleNamespace(info=lambda: info)


def test_gpus_only_where_docker_has_them() -> None:
    assert settings.gpus(docker(Runtimes={"runc": {}}), "auto") == []
    assert settings.gpus(docker(Runtimes={"nvidia": {}}), "none") == []
    every = settings.gpus(docker(Runtimes={"nvidia": {}}), "auto")
    assert every[0]["Count"] == -1
    assert every[0]["Capabilities"] == [["gpu"]]
    two = settings.gpus(docker(DiscoveredDevices=[{"ID": "nvidia.com/gpu=0"}]), "0,1")
    assert two[0]["DeviceIDs"] == ["0", "1"]
    for wanted, code in (("all", Code.GPU_UNAVAILABLE), ("-1", Code.USAGE), ("0,", Code.USAGE)):
        with pytest.raises(TrbError) as caught:
            settings.gpus(docker(), wanted)
        assert caught.value.code is code


def test_shared_memory_grows_with_instances_and_tensors() -> None:
    tensor = {"name": "X", "data_type": "TYPE_FP32", "dims": ["3", "224", "224"]}
    image = {"backend": "python", "max_batch_size": 32, "input": [tensor]}

    def needed(*models: Model) -> int:
        return shared_memory.needed(Repository(path=Path(), models=models, manifest=None))

    assert needed() == 64 * MEBI
    assert needed(model("ensemble", platform="ensemble")) == 64 * MEBI
    small = model("a", backend="python", instance_group=[{"count": 3}])
    assert needed(small) == (64 + 3 * 8) * MEBI
    one = 4 * 32 * 3 * 224 * 224 * 4
    assert needed(model("b", **image)) == 64 * MEBI + -(-one // MEBI) * MEBI
    assert needed(model("b", **image, instance_group=[{"count": 2}])) >= 64 * MEBI + 2 * one
    assert needed(model("c", platform="onnxruntime_onnx")) == 80 * MEBI


def test_what_a_container_may_read(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / "model").mkdir(parents=True)
    for folder in (root, root / "model"):
        folder.chmod(0o755)
    file = root / "model" / "config.pbtxt"
    file.write_text("")
    file.chmod(0o644)
    stranger = os.getuid() + 1
    assert volume.obstacle(root, stranger, same_ids=True) == ""
    file.chmod(0o600)
    assert "model/config.pbtxt cannot be read" in volume.obstacle(root, stranger, same_ids=True)
    assert volume.obstacle(root, os.getuid(), same_ids=True) == ""
    assert volume.obstacle(root, os.getuid(), same_ids=False)
    file.chmod(0o644)
    (root / "out").symlink_to(tmp_path)
    assert "out is a link that leads out" in volume.obstacle(root, stranger, same_ids=True)


def test_a_stub_that_vanishes_from_the_daemons_list_has_ended() -> None:
    argv = "/opt/backends/python/triton_python_backend_stub /models/step/1/model.py a b c d e f step_0_0"
    listed = [[["7", argv], ["1", "tritonserver"]], [["1", "tritonserver"]]]
    stubs = ContainerStubProcesses(
        SimpleNamespace(top=lambda ps_args: {"Processes": listed.pop(0)}), "/models"
    )
    first = stubs.scan()
    assert [(stub.pid, stub.model, stub.instance, stub.dead) for stub in first] == [
        (7, "step", "step_0_0", False)
    ]
    assert stubs.scan() == first, "the last look stands for a while"
    stubs._scanned -= stubs.tick
    assert [(stub.pid, stub.model, stub.dead) for stub in stubs.scan()] == [(7, "step", True)]


def test_whose_container_it_is() -> None:
    assert not cleanup.stray({})
    assert not cleanup.stray(cleanup.labels(Path("repository")))
    mine = cleanup.owner(os.getpid())
    assert not cleanup.stray({cleanup.OWNER: "another-machine/1/5"})
    assert cleanup.stray({cleanup.OWNER: mine.rpartition("/")[0] + "/0"}), "a later process with the same id"
    assert not cleanup.stray({cleanup.OWNER: mine.rpartition("/")[0] + "/"}), "not known"
    assert cleanup.stray({cleanup.OWNER: mine.replace(f"/{os.getpid()}/", "/4194305/")})


def test_auto_prefers_the_embedded_server_then_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise TrbError(Code.ENGINE_MISSING, "is not installed", remedy="pip install it")

    monkeypatch.setattr(install, "find", lambda: None)
    assert serve.choose() == "embedded"
    monkeypatch.setattr(install, "find", missing)
    monkeypatch.setattr(daemon, "connect", lambda: SimpleNamespace(close=lambda: None))
    assert serve.choose() == "docker"

    def refused() -> Any:
        raise TrbError(Code.DAEMON_UNREACHABLE, "this user may not", remedy="join the group")

    monkeypatch.setattr(daemon, "connect", refused)
    with pytest.raises(TrbError) as caught:
        serve.choose()
    assert caught.value.code is Code.ENGINE_MISSING
    assert "pip install it" in str(caught.value)
    assert "this user may not" in str(caught.value)
    assert "join the group" in str(caught.value)


def test_a_log_is_followed_by_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nthr")
    said: list[str] = []
    looks = iter([False, True])

    def ended() -> bool:
        over = next(looks)
        if over:
            log.write_text("one\ntwo\nthree\n")
        return over

    log_follow.follow(lambda: log, said.append, ended, start=log_follow.last_lines(log, 2))
    assert "".join(said) == "two\nthree\n"
    assert log_follow.last_lines(log, 0) == len("one\ntwo\nthree\n")
    assert log_follow.last_lines(log, 99) == 0
    log_follow.follow(lambda: tmp_path / "none", said.append, lambda: True)


def test_traces_and_what_a_container_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=x")
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    options = serve.ServeOptions(trace="http://10.0.0.1:4318/v1/traces", trace_rate=5)
    assert [
        flag.removeprefix("--trace-config=") for flag in settings.command(options) if "trace" in flag
    ] == [
        "mode=opentelemetry",
        "level=TIMESTAMPS",
        "rate=5",
        "opentelemetry,url=http://10.0.0.1:4318/v1/traces",
        "opentelemetry,resource=service.name=triton-inference-server",
        "opentelemetry,bsp_schedule_delay=1000",
    ]
    assert tracing.environment(options) == {
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=x",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://10.0.0.1:4318/v1/traces",
    }
    off = serve.ServeOptions()
    assert tracing.arguments(off) == [] and tracing.environment(off) == {}


@pytest.mark.parametrize(
    ("url", "count"), [("http://127.0.0.1:4318/v1/traces", 1), ("http://10.0.0.1:1/x", 0), ("", 0)]
)
def test_a_container_does_not_reach_this_machines_loopback(url: str, count: int) -> None:
    said: list[str] = []
    tracing.warn_of_loopback(serve.ServeOptions(trace=url), said.append)
    assert len(said) == count


def test_a_containers_output_becomes_json() -> None:
    pieces = [
        b"Traceback (most recent call last):\n",
        b"  File x\n",
        b"ValueError: a\n",
        b'E1127 10:00:00.000001 1 a.cc:1] "b"\n',
    ]
    lines = b"".join(handle._as_json(iter(pieces))).splitlines()
    first, second = map(json.loads, lines)
    assert first["message"].endswith("ValueError: a") and second["time"].endswith("T10:00:00.000001Z")
