"""``trb serve --openai``: the gateway beside a real server, from its start to the end of both."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest
import tiny

from tests.support import versions_apart
from tests.support.cli import in_folder, kind
from tests.support.serve_repository import children, command, free_port, listens, serve, until
from triton_repo_builder.base.errors import Code

pytestmark = pytest.mark.server
PORT = "--openai-port=0"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return versions_apart.make(tmp_path / "repository")


def gateway_of(pid: int) -> int:
    """Process id of the gateway below a ``trb serve``."""
    return next(child for child in children(pid) if " gateway " in command(child))


def embeds(url: str) -> bool:
    try:
        answer = httpx.post(f"{url}/v1/embeddings", json={"model": "apart", "input": "hello"}, timeout=30)
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and answer.json()["data"][0]["embedding"] == [1.0, 0.0]


def test_answers_prints_the_call_and_ends_with_the_server(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--openai", PORT, "--json") as running:
        about = running.ready()
        url = about["urls"]["openai"]
        assert embeds(url)
        endpoint = about["endpoints"][0]
        assert next(iter(endpoint["titles"])) == "openai"
        answer = subprocess.run(
            shlex.split(endpoint["openai"]), capture_output=True, text=True, timeout=30, check=True
        )
        assert json.loads(answer.stdout)["object"] == "list"
        client = in_folder(tmp_path, "client", "apart", str(repository), "--json")
        calls = json.loads(client.stdout)
        assert list(calls)[:3] == ["openai-curl", "openai-python", "openai-javascript"]
        assert f"{url}/v1" in calls["openai-python"]
        one = in_folder(
            tmp_path, "client", "apart", str(repository), "--openai", url, "--language=openai-curl"
        )
        assert one.stdout.strip() == calls["openai-curl"]
        gateway = gateway_of(running.process.pid)
        assert running.end(signal.SIGTERM) == 0
    assert not Path(f"/proc/{gateway}").exists()


@pytest.mark.gateway
def test_a_gateway_that_dies_is_started_again(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--openai", PORT, "--json") as running:
        url = running.ready()["urls"]["openai"]
        gateway = gateway_of(running.process.pid)
        os.kill(gateway, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{gateway}").exists())
        until(lambda: embeds(url))
        assert "the gateway ended" in running.err.read_text()


@pytest.mark.gateway
def test_it_answers_again_after_a_restart_of_the_server(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--openai", PORT, "--json") as running:
        url = running.ready()["urls"]["openai"]
        gateway = gateway_of(running.process.pid)
        os.kill(running.server, signal.SIGKILL)
        until(lambda: not embeds(url))
        until(lambda: embeds(url))
        assert gateway_of(running.process.pid) == gateway


@pytest.mark.gateway
def test_it_ends_when_trb_is_killed(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--openai", PORT, "--json") as running:
        running.ready()
        gateway = gateway_of(running.process.pid)
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
        until(lambda: not Path(f"/proc/{gateway}").exists())


@pytest.mark.gateway
def test_no_request_fails_while_it_stops(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--openai", PORT, "--json") as running:
        url = running.ready()["urls"]["openai"]
        statuses: list[int] = []
        ends: list[float] = []

        def ask() -> None:
            with httpx.Client() as client:
                while True:
                    try:
                        answer = client.post(f"{url}/v1/embeddings", json={"input": "hello"}, timeout=30)
                    except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
                        # It listens no longer, or closed an idle connection.
                        ends.append(time.monotonic())
                        return
                    statuses.append(answer.status_code)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        asked = time.monotonic()
        assert running.end(signal.SIGTERM) == 0
        for thread in threads:
            thread.join(30)
        assert statuses and {*statuses} == {200}
        assert len(ends) == len(threads) and min(ends) - asked > 5  # the default of --drain


@pytest.mark.gateway
@pytest.mark.parametrize(
    ("words", "seconds"), [(("--drain", "3"), 3), (("--drain", "5"), 5), ((), 5)], ids=["3", "5", "default"]
)
def test_a_drain_keeps_answering_for_its_time(
    tmp_path: Path, repository: Path, words: tuple[str, ...], seconds: int
) -> None:
    with serve(tmp_path, repository, "--openai", PORT, *words, "--json") as running:
        url = running.ready()["urls"]["openai"]
        begun = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{url}/health").status_code == 503, 3)
        assert embeds(url)
        running.process.wait(60)
        assert time.monotonic() - begun > seconds


@pytest.mark.gateway
def test_an_endpoint_that_is_not_loaded_is_unhealthy(tmp_path: Path) -> None:
    """503, and 404 for a name that is no endpoint of the repository."""
    output = tmp_path / "repository"
    for name in ("here", "away"):
        model = tiny.classifier(tmp_path / name)
        done = in_folder(tmp_path, "build", "--model", str(model), "--name", name, "-o", str(output))
        assert done.returncode == 0, done.stderr
    with serve(tmp_path, output, "--load", "here", "--openai", PORT, "--json") as running:
        url = running.ready()["urls"]["openai"]
        names = ("here", "away", "here_model", "nobody")
        answers = {name: httpx.get(f"{url}/models/{name}/health").status_code for name in names}
        assert answers == {"here": 200, "away": 503, "here_model": 404, "nobody": 404}


@pytest.mark.gateway
def test_ctrl_c_skips_the_drain(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--openai", PORT, "--drain", "600", "--json") as running:
        running.ready()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(60) == 0


@pytest.mark.gateway
def test_in_the_background(tmp_path: Path, repository: Path) -> None:
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    done = in_folder(tmp_path, "serve", str(repository), *ports, "--openai", PORT, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    url = json.loads(done.stdout)["urls"]["openai"]
    try:
        assert embeds(url)
        listed = json.loads(in_folder(tmp_path, "status", "--json").stdout)
        assert listed[0]["urls"]["openai"] == url
        assert url in in_folder(tmp_path, "status").stdout
    finally:
        stopped = in_folder(tmp_path, "stop")
    assert stopped.returncode == 0
    assert not listens(int(url.rsplit(":", 1)[1]))


@pytest.mark.gateway
def test_behind_an_admin_key_and_beyond_loopback(tmp_path: Path, repository: Path) -> None:
    """The list of models needs a key that only trb has; the gateway asks for each model of the repository."""
    keys = tmp_path / "keys"
    keys.write_text("0123456789abcdef owner\n")
    keys.chmod(0o600)
    arguments = ("--openai", PORT, "--json", "--host=0.0.0.0", f"--api-keys={keys}")
    with serve(tmp_path, repository, *arguments) as running:
        url = running.ready()["urls"]["openai"]
        assert url.startswith("http://127.0.0.1:")
        headers = {"Authorization": "Bearer 0123456789abcdef"}
        until(lambda: httpx.get(f"{url}/v1/models", headers=headers).json()["data"], 20)


@pytest.mark.gateway
def test_a_gateway_that_does_not_start_is_the_error_of_the_command(tmp_path: Path, repository: Path) -> None:
    """The map goes away after its first check, while models are loaded."""
    port = free_port()
    names = tmp_path / "gateway.toml"
    names.touch()

    def remove() -> None:
        until(lambda: listens(port))
        names.unlink()

    removed = threading.Thread(target=remove)
    removed.start()
    ports = (f"--http-port={port}", "--grpc-port=0", "--metrics-port=0")
    arguments = ("--openai", PORT, "--json", f"--map={names}")
    done = in_folder(tmp_path, "serve", str(repository), *ports, *arguments)
    removed.join()
    assert done.returncode == Code.NOT_FOUND.exit
    document = json.loads(done.stdout)
    assert document["code"] == Code.NOT_FOUND.kind and "the gateway: " in document["error"]
    assert "gateway.toml" in done.stderr


def test_what_cannot_work_is_refused_before_models_are_loaded(tmp_path: Path, repository: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        busy = in_folder(tmp_path, "serve", str(repository), "--openai", f"--openai-port={port}")
    assert busy.returncode and kind(busy.stderr) is Code.PORT_BUSY
    missing = in_folder(tmp_path, "serve", str(repository), "--openai", PORT, "--map=none.toml")
    assert kind(missing.stderr) is Code.NOT_FOUND and "models ready" not in missing.stderr
    alone = in_folder(tmp_path, "serve", str(repository), "--api-keys", "keys")
    assert alone.returncode == 2 and "--openai" in alone.stderr
