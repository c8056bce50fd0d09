"""A server that a request ends comes back: same ports, same models, counted, up to a bound."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import killing_requests
from tests.support import serve_repository as made
from tests.support.serve_repository import FREE, Serve, serve, until
from triton_repo_builder.base.errors import Code

pytestmark = pytest.mark.server

BRACKETS = 40_000


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A Python model ``step`` below an ensemble ``whole``, and another model."""
    root = made.whole(tmp_path / "repository")
    made.python(root, "other")
    return root


def back(running: Serve, times: int) -> None:
    """Wait until the server was started again so many times."""
    until(lambda: running.err.read_text().count("serves again at") == times)


def test_brackets_end_the_server_and_it_comes_back(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json") as running:
        about = running.ready()
        for times in (1, 2):
            killing_requests.send(running.http, BRACKETS)
            back(running, times)
            assert running.infer("whole") == running.infer("step") == running.infer("other") == 200
        said = running.err.read_text()
        assert "warning: tritonserver ended (killed by SIGSEGV)" in said
        assert "starting it again in 1 s (1 of 5)" in said
        assert "starting it again in 2 s (2 of 5)" in said
        assert running.process.poll() is None
        assert made.listens(int(about["urls"]["grpc"].rpartition(":")[2]))
        assert running.end(signal.SIGTERM) == 0
        # The output of all starts, in one file.
        (log,) = running.tmp.glob("trb-*.log")
        assert log.read_text().count("Started HTTPService") == 3


@pytest.mark.slow
@pytest.mark.slow
def test_what_was_loaded_comes_back(tmp_path: Path, repository: Path) -> None:
    """What was loaded and unloaded since the start."""
    with serve(tmp_path, repository, "--json", "--load", "other") as running:
        running.ready()
        for name, action in (("whole", "load"), ("other", "unload")):
            assert made.trb(tmp_path, action, name, "--url", running.http).returncode == 0
        time.sleep(2.5)  # it looks every two seconds
        os.kill(running.server, signal.SIGKILL)
        back(running, 1)
        assert running.infer("whole") == 200
        assert running.infer("other") == 404
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_in_the_background(tmp_path: Path, repository: Path) -> None:
    def status() -> dict[str, Any]:
        (entry,) = json.loads(made.trb(tmp_path, "status", "--json").stdout)
        return dict(entry)

    said = made.trb(tmp_path, "serve", str(repository), *FREE, "--detach", "--json")
    assert said.returncode == 0, said.stderr
    about = json.loads(said.stdout)
    try:
        os.kill(about["server_pid"], signal.SIGKILL)
        until(lambda: status()["restarts"] == 1)
        now = status()
        assert now["ready"] and now["urls"] == about["urls"] and now["server_pid"] != about["server_pid"]
        assert sorted(now["loaded"]) == ["other", "whole"]
        assert "ready (1 restart)" in " ".join(made.trb(tmp_path, "status").stdout.split())
        assert Path(now["log"]).read_text().count("Started HTTPService") == 2
        assert "Started HTTPService" in made.trb(tmp_path, "logs").stdout
    finally:
        assert made.trb(tmp_path, "stop").returncode == 0
    assert not Path(f"/proc/{now['server_pid']}").exists()


def test_it_gives_up_at_the_bound(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json", "--restarts", "1") as running:
        running.ready()
        os.kill(running.server, signal.SIGKILL)
        back(running, 1)
        listener = int(running.http.rpartition(":")[2])
        os.kill(server_of(running), signal.SIGKILL)
        assert running.end() == Code.SERVER_DIED.exit
        assert "it is not started again" in running.err.read_text()
        assert not made.listens(listener)


@pytest.mark.slow
def test_stop_while_it_waits(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json") as running:
        running.ready()
        os.kill(running.server, signal.SIGKILL)
        until(lambda: "starting it again" in running.err.read_text())
        assert running.end(signal.SIGTERM) == 0
        assert "serves again" not in running.err.read_text()


@pytest.mark.slow
def test_a_server_that_somebody_stopped_stays_stopped(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json") as running:
        running.ready()
        os.kill(running.server, signal.SIGTERM)
        assert running.end() == Code.SERVER_DIED.exit
        assert "starting it again" not in running.err.read_text()


def test_a_server_that_dies_at_its_start_is_not_started_again(tmp_path: Path, repository: Path) -> None:
    made.python(repository, "deadly", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)\n")
    said = made.trb(tmp_path, "serve", str(repository), *FREE)
    assert said.returncode == Code.SERVER_DIED.exit
    assert "starting it again" not in said.stderr


def server_of(running: Serve) -> int:
    """The current tritonserver of a ``trb serve``."""
    (server,) = (
        pid
        for supervisor in made.children(running.process.pid)
        for pid in made.children(supervisor)
        if "tritonserver" in made.command(pid)
    )
    return server
