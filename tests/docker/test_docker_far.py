"""A daemon on another machine: the repository is copied there, and its end is noticed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import unavailable

from tests.docker import far
from tests.docker.conftest import ours
from tests.support import serve_repository as made
from triton_repo_builder.base.errors import Code

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def machine(
    client: Any, slim: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Path]]:
    """The far daemon's process, a client of it, and a folder of ours that it does not see."""
    import docker

    if reason := far.obstacle():
        unavailable(reason)
    hidden = tmp_path_factory.mktemp("hidden")
    with far.daemon(tmp_path_factory.mktemp("far"), hidden) as running:
        there = docker.DockerClient(base_url=far.ADDRESS)
        there.images.load(client.images.get(slim).save(named=True))
        yield running, there, hidden


@pytest.fixture(autouse=True)
def remote(machine: tuple[Any, Any, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", far.ADDRESS)


def test_loopback_there_is_not_here(tmp_path: Path, slim: str, machine: tuple[Any, Any, Path]) -> None:
    made.python(machine[2] / "loopback", "step")
    said = made.trb(
        tmp_path, "serve", str(machine[2] / "loopback"), *made.FREE, "--engine", "docker", "--image", slim
    )
    assert said.returncode == 2
    assert f"--host: the Docker daemon is on {far.THERE}" in said.stderr


def test_smoke_on_a_copy_of_the_repository(
    tmp_path: Path, slim: str, machine: tuple[Any, Any, Path], minilm: Path
) -> None:
    import shutil

    _, there, hidden = machine
    shutil.copytree(minilm, hidden / "minilm")
    said = made.trb(
        tmp_path, "smoke", str(hidden / "minilm"), "--engine", "docker", "--image", slim, "--host", far.THERE
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"tritonserver 2.51.0 at http://{far.THERE}:" in said.stdout
    assert not ours(there)


def test_a_daemon_that_stops_takes_the_server_with_it(
    tmp_path: Path, slim: str, machine: tuple[Any, Any, Path]
) -> None:
    running, there, hidden = machine
    made.python(hidden / "ends", "step")
    server = made.Serve(
        tmp_path, hidden / "ends", "--engine", "docker", "--image", slim, "--host", far.THERE, "--json"
    )
    try:
        made.until(lambda: server.out.read_text().endswith("\n") or server.process.poll() is not None)
        assert ours(there), server.err.read_text()
        running.terminate()
        assert server.process.wait(90) == Code.SERVER_DIED.exit
        assert "the Docker daemon stopped answering" in server.err.read_text()
    finally:
        server.process.kill()
