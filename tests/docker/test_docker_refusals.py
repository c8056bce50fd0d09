"""What goes wrong with Docker is said in words that help, and leaves nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.docker.conftest import BASE
from tests.support import serve_repository as made
from triton_repo_builder.base.errors import Code

pytestmark = pytest.mark.docker


def serve(tmp: Path, repository: Path, *arguments: str) -> tuple[int, str]:
    """``trb serve --engine docker``, which must fail."""
    said = made.trb(tmp, "serve", str(repository), *made.FREE, "--engine", "docker", *arguments)
    assert said.stdout == ""
    assert "Traceback" not in said.stderr
    return said.returncode, said.stderr


def test_a_port_that_is_taken(tmp_path: Path, slim: str, repository: Path) -> None:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        code, said = serve(tmp_path, repository, "--image", slim, f"--http-port={port}")
    assert code == Code.PORT_BUSY.exit
    assert f"--http-port: port {port} is in use" in said


def test_a_port_that_another_container_holds(
    tmp_path: Path, slim: str, client: Any, repository: Path
) -> None:
    port = made.free_port()
    other = client.containers.run(
        BASE, ["sleep", "60"], ports={"8000/tcp": ("127.0.0.1", port)}, detach=True, auto_remove=True
    )
    try:
        code, said = serve(tmp_path, repository, "--image", slim, f"--http-port={port}")
    finally:
        other.kill()
    assert code == Code.PORT_BUSY.exit
    assert f"port {port} is in use" in said


def test_an_image_that_is_not_here(tmp_path: Path, repository: Path) -> None:
    code, said = serve(tmp_path, repository, "--image", "trb-none:1", "--pull", "never")
    assert code == Code.IMAGE_UNAVAILABLE.exit
    assert "trb-none:1: the image is not on this machine" in said


def test_the_official_image_by_release(tmp_path: Path, repository: Path) -> None:
    code, said = serve(tmp_path, repository, "--triton-release", "25.03", "--pull", "never")
    assert code == Code.IMAGE_UNAVAILABLE.exit
    assert "nvcr.io/nvidia/tritonserver:25.03-py3" in said
    code, said = serve(tmp_path, repository, "--triton-release", "19.01")
    assert code == 2
    assert "unknown Triton release '19.01'" in said


def test_a_registry_out_of_reach(tmp_path: Path, repository: Path) -> None:
    port = made.free_port()
    code, said = serve(tmp_path, repository, "--image", f"127.0.0.1:{port}/triton:1")
    assert code == Code.IMAGE_UNAVAILABLE.exit
    assert f"the registry 127.0.0.1:{port} cannot be reached" in said
    assert "connection refused" in said


def test_a_tag_that_does_not_exist(tmp_path: Path, docker_registry: str, repository: Path) -> None:
    code, said = serve(tmp_path, repository, "--image", f"{docker_registry}/triton:nosuchtag")
    assert code == Code.IMAGE_UNAVAILABLE.exit
    assert "there is no such image" in said
    assert "is the name or tag right?" in said


def test_an_image_is_pulled_with_progress(
    tmp_path: Path, slim: str, client: Any, docker_registry: str, repository: Path
) -> None:
    name = f"{docker_registry}/trb-tritonserver"
    client.images.get(slim).tag(name, "1")
    for event in client.api.push(name, tag="1", stream=True, decode=True):
        assert "error" not in event, event
    client.images.remove(f"{name}:1")
    # Layers that are still here are not fetched again: without the other name there are none to share.
    running = made.Serve(
        tmp_path, repository, "--engine", "docker", "--image", f"{name}:1", "--pull", "always", "--json"
    )
    try:
        about = running.ready()
        assert about["about"].startswith(f"docker: {name}:1")
        assert f"pulling {name}:1" in running.err.read_text()
    finally:
        running.process.terminate()
        running.process.wait(60)
        client.images.remove(f"{name}:1")


def test_an_image_without_a_tritonserver(tmp_path: Path, slim: str, repository: Path) -> None:
    code, said = serve(tmp_path, repository, "--image", BASE)
    assert code == Code.IMAGE_UNAVAILABLE.exit
    assert "the image has no tritonserver on its PATH" in said


def test_gpus_where_there_are_none(tmp_path: Path, slim: str, client: Any, repository: Path) -> None:
    if "nvidia" in client.info()["Runtimes"]:
        pytest.skip("this Docker has GPUs to give")
    code, said = serve(tmp_path, repository, "--image", slim, "--gpus", "0,1")
    assert code == Code.GPU_UNAVAILABLE.exit
    assert "--gpus: Docker cannot give GPUs" in said
    code, said = serve(tmp_path, repository, "--image", slim, "--gpus", "two")
    assert code == 2
    assert "--gpus: invalid GPUs 'two'" in said


def test_no_daemon(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    code, said = serve(tmp_path, repository)
    assert code == Code.DAEMON_UNREACHABLE.exit
    assert f"unix://{tmp_path}/nothing.sock: the Docker daemon does not answer" in said
    said_by = made.trb(tmp_path, "image", "build")
    assert said_by.returncode == Code.DAEMON_UNREACHABLE.exit
    monkeypatch.setenv("DOCKER_HOST", "tcp://host:notaport")
    code, said = serve(tmp_path, repository)
    assert code == Code.DAEMON_UNREACHABLE.exit
    assert "correct DOCKER_HOST" in said
    monkeypatch.delenv("DOCKER_HOST")
    (tmp_path / "config.json").write_text('{"auths": "x"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    code, said = serve(tmp_path, repository)
    assert code == Code.DAEMON_UNREACHABLE.exit
    assert str(tmp_path / "config.json") in said
    monkeypatch.delenv("DOCKER_CONFIG")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    # Commands that only may need Docker do without it, and say so.
    stopped = made.trb(tmp_path, "stop", "--all")
    assert stopped.returncode == Code.NOT_RUNNING.exit
    assert "containers were not looked for" in stopped.stderr
    assert made.trb(tmp_path, "status").returncode == 0


def test_a_repository_with_nothing_in_it(tmp_path: Path, slim: str) -> None:
    (tmp_path / "empty").mkdir()
    code, said = serve(tmp_path, tmp_path / "empty", "--image", slim)
    assert code == Code.REPOSITORY_UNREADABLE.exit
    assert "contains no model" in said


def test_an_interrupt_while_loading(tmp_path: Path, slim: str, repository: Path) -> None:
    made.python(
        repository,
        "slow",
        made.HEALTHY + "\n    def initialize(self, args):\n        import time; time.sleep(120)\n",
    )
    running = made.Serve(tmp_path, repository, "--engine", "docker", "--image", slim)
    made.until(lambda: "loading" in running.err.read_text())
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 130


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--image", "UPPER/Case"), 2, "invalid image name"),
        (("--image", "nosuch:1"), 6, "docker.io"),
        (("--image", "x", "--triton-release", "25.03"), 2, "both choose the image"),
        (("--engine", "embedded", "--gpus", "none"), 2, "--gpus applies to Docker only"),
        (("--container-user", "somebody"), 2, "--container-user: invalid user 'somebody'"),
        (("--host", ""), 2, "is empty"),
    ],
)
def test_options_that_make_no_sense(
    tmp_path: Path, slim: str, repository: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    image = () if "--image" in arguments else ("--image", slim)
    chosen = () if "--engine" in arguments else image
    said = made.trb(tmp_path, "serve", str(repository), *made.FREE, *chosen, *arguments)
    assert said.returncode == code, said.stderr
    assert words in said.stderr
    assert "Traceback" not in said.stderr


def test_docker_options_choose_docker(tmp_path: Path, repository: Path) -> None:
    said = made.trb(tmp_path, "smoke", str(repository), "--image", "trb-none:1", "--pull", "never")
    assert said.returncode == Code.IMAGE_UNAVAILABLE.exit
    assert "trb-none:1" in said.stderr


@pytest.mark.parametrize("tag", ["Upper", "a b", "rev:BAD:x"])
def test_a_tag_that_docker_does_not_take(tmp_path: Path, tag: str) -> None:
    said = made.trb(tmp_path, "image", "build", "--tag", tag)
    assert said.returncode == 2
    assert "--tag" in said.stderr
