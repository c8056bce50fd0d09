"""``trb serve --engine docker`` and its companions, against a real engine and the slim image."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.docker.conftest import ours
from tests.support import killing_requests
from tests.support import serve_repository as made
from triton_repo_builder.base.errors import Code
from triton_repo_builder.run.serve.docker import cleanup, settings
from triton_repo_builder.run.serve.processes import shared_memory

pytestmark = pytest.mark.docker


def docker(slim: str) -> tuple[str, ...]:
    return ("--engine", "docker", "--image", slim, "--pull", "never")


class Serve(made.Serve):
    """Its processes are those of the container; the daemon answers for them."""

    def note(self) -> None:
        self.owned = {self.server}

    def over(self, number: int | None = None) -> int:
        """Signal, wait, and return the exit code."""
        return self.end(number)


def test_smoke_of_a_real_model(tmp_path: Path, slim: str, minilm: Path) -> None:
    said = made.trb(tmp_path, "smoke", str(minilm), *docker(slim), "--json")
    report = json.loads(said.stdout)
    assert said.returncode == 0, said.stderr + said.stdout
    assert report["ok"] and report["parity_proven"] and report["server_version"] == "2.51.0"


def test_bench_counts_and_sees_the_servers_cpu(tmp_path: Path, slim: str, minilm: Path) -> None:
    short = ("--warmup", "500ms", "--window", "1s", "--min-windows", "1", "--max-windows", "1")
    said = made.trb(tmp_path, "bench", str(minilm), *docker(slim), "--concurrency", "8", *short, "--json")
    assert said.returncode == 0, said.stderr
    level = json.loads(said.stdout)["levels"][0]
    assert level["throughput"] > 0 and not level["failures"]
    assert level["server_cpu_ms"] > 0
    rows = {model["model"]: model["rows_per_execution"] for model in level["models"]}
    assert rows["minilm_model"] > 1


def test_the_container_is_confined_and_labelled(
    tmp_path: Path, slim: str, client: Any, repository: Path
) -> None:
    (repository / "numpy.py").write_text("raise SystemExit('imported from the folder of the models')")
    running = Serve(tmp_path, repository, *docker(slim), "--json")
    try:
        about = running.ready()
        assert about["engine"] == "docker"
        assert running.infer("whole") == 200
        found = client.containers.get(about["container"])
        host = found.attrs["HostConfig"]
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        assert {limit["Name"] for limit in host["Ulimits"]} >= {"stack"}
        from triton_repo_builder import repository as read

        assert host["ShmSize"] == shared_memory.needed(read.read(repository))
        assert host["Privileged"] is False
        assert found.attrs["Config"]["WorkingDir"] == settings.CURRENT
        user = found.attrs["Config"]["User"]
        assert user.split(":")[0] not in ("", "0", "root")
        mount = found.attrs["Mounts"][0]
        assert (mount["Source"], mount["Destination"], mount["RW"]) == (str(repository), "/models", False)
        bound = [entry for entries in found.attrs["NetworkSettings"]["Ports"].values() for entry in entries]
        assert {entry["HostIp"] for entry in bound} == {"127.0.0.1"}
        assert found.labels[cleanup.REPOSITORY] == str(repository)
        assert cleanup.OWNER in found.labels
        before = made.files(repository)
        assert running.over(signal.SIGTERM) == 0
        assert made.files(repository) == before
    finally:
        running.process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_trb_ends_no_container_stays(
    tmp_path: Path, slim: str, client: Any, repository: Path, number: int
) -> None:
    running = Serve(tmp_path, repository, *docker(slim), "--json")
    try:
        running.ready()
        assert len(ours(client)) == 1
        running.process.send_signal(number)
        code = running.process.wait(60)
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        made.until(lambda: not ours(client))
    finally:
        running.process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whenever_trb_ends_nothing_stays(
    tmp_path: Path, slim: str, client: Any, repository: Path, number: int
) -> None:
    """Signals over the whole of a start: before the container, while it is made, and while models load.

    An interrupt within an ``exec`` of the standard library (dataclasses, while modules are imported) is
    remembered by CPython 3.11, which then ends itself with SIGINT: for a shell that is the same 130.
    """
    before = set((tmp_path / "tmp").glob("*"))
    for step in range(8):
        running = made.Serve(tmp_path, repository, *docker(slim), "--json")
        time.sleep(0.3 + 0.25 * step)
        running.process.send_signal(number)
        assert running.process.wait(60) in (130, -number, -signal.SIGINT, 0), running.err.read_text()
        made.until(lambda: not ours(client))
        made.until(lambda: set((tmp_path / "tmp").glob("*")) == before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_of_a_copy_that_was_cut_off(
    tmp_path: Path, slim: str, client: Any, repository: Path, number: int
) -> None:
    (repository / "step" / "1" / "weights").write_bytes(os.urandom(1 << 20) * 300)
    (tmp_path / "code.py").write_text(made.HEALTHY)
    (repository / "step" / "1" / "model.py").unlink()
    (repository / "step" / "1" / "model.py").symlink_to(tmp_path / "code.py")
    running = made.Serve(tmp_path, repository, *docker(slim), "--json")
    made.until(lambda: "copying the repository" in running.err.read_text())
    time.sleep(0.2)
    running.process.send_signal(number)
    running.process.wait(60)
    made.until(lambda: not ours(client))


def test_modules_where_the_user_works_are_not_ours(
    tmp_path: Path, slim: str, client: Any, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("docker", "requests", "triton_repo_builder", "click"):
        (work / f"{name}.py").write_text(f"raise SystemExit('imported {name} of the user')")
    trb = str(Path(sys.executable).with_name("trb"))
    monkeypatch.chdir(work)
    arguments = [trb, "serve", str(repository), *made.FREE, *docker(slim), "--detach"]
    said = subprocess.run(
        arguments, capture_output=True, text=True, env=made.environment(tmp_path), check=False, timeout=120
    )
    assert said.returncode == 0, said.stderr
    supervisor = json.loads(made.trb(tmp_path, "status", "--json", cwd=tmp_path).stdout)[0]["pid"]
    os.kill(supervisor, signal.SIGKILL)
    made.until(lambda: not ours(client))


@pytest.mark.parametrize("how", ["nowhere", "circle"])
def test_a_link_that_cannot_be_followed_is_named(
    tmp_path: Path, slim: str, repository: Path, how: str
) -> None:
    link = repository / "step" / "1" / "link"
    link.symlink_to(tmp_path / "nowhere" if how == "nowhere" else link)
    said = made.trb(tmp_path, "serve", str(repository), *made.FREE, *docker(slim))
    assert said.returncode == Code.REPOSITORY_UNREADABLE.exit
    assert f"{link}: cannot be read: a link that cannot be followed" in said.stderr


def test_stop_all_finds_a_container_that_nobody_looks_after(
    tmp_path: Path, slim: str, client: Any, repository: Path
) -> None:
    running = Serve(tmp_path, repository, *docker(slim), "--json")
    about = running.ready()
    guard = [pid for pid in made.children(running.process.pid) if "docker/supervisor.py" in made.command(pid)]
    assert len(guard) == 1
    os.kill(guard[0], signal.SIGKILL)
    running.process.kill()
    running.process.wait()
    assert ours(client) == [about["container"]]
    said = made.trb(tmp_path, "stop", "--all")
    assert said.returncode == 0, said.stderr
    assert f"removed {about['container']} from Docker" in said.stdout
    assert not ours(client)


def test_detach_status_logs_stop(tmp_path: Path, slim: str, client: Any, repository: Path) -> None:
    said = made.trb(tmp_path, "serve", str(repository), *made.FREE, *docker(slim), "--detach", "--json")
    assert said.returncode == 0, said.stderr
    about = json.loads(said.stdout)
    try:
        listed = json.loads(made.trb(tmp_path, "status", "--json").stdout)
        assert [(one["container"], one["ready"]) for one in listed] == [(about["container"], True)]
        assert about["container"] in made.trb(tmp_path, "status").stdout
        logs = made.trb(tmp_path, "logs").stdout
        assert "Started HTTPService" in logs
        assert len(made.trb(tmp_path, "logs", "--tail", "2").stdout.splitlines()) == 2
    finally:
        stopped = made.trb(tmp_path, "stop", about["container"])
    assert stopped.returncode == 0, stopped.stderr
    assert not ours(client)


def test_a_container_killed_under_load_is_reported(
    tmp_path: Path, slim: str, client: Any, repository: Path
) -> None:
    running = Serve(tmp_path, repository, *docker(slim), "--json", "--restarts", "0")
    try:
        about = running.ready()
        good, bad = [0], [0]
        over = threading.Event()

        def call() -> None:
            while not over.is_set():
                try:
                    good[0] += running.infer("whole") == 200
                except (OSError, ValueError):
                    bad[0] += 1
                    time.sleep(0.01)

        clients = [threading.Thread(target=call) for _ in range(4)]
        for one in clients:
            one.start()
        made.until(lambda: good[0] > 20)
        client.containers.get(about["container"]).kill()
        made.until(lambda: bad[0] > 4)
        over.set()
        for one in clients:
            one.join()
        assert running.process.wait(60) == Code.SERVER_DIED.exit
        said = running.err.read_text()
        assert "the container ended (killed)" in said
        assert not ours(client)
    finally:
        running.process.kill()


def test_a_container_that_a_request_ends_comes_back(
    tmp_path: Path, slim: str, client: Any, repository: Path
) -> None:
    running = Serve(tmp_path, repository, *docker(slim), "--json", "--restarts", "1")
    try:
        running.ready()
        for times in (1, 2):
            before = ours(client)
            # Its stack is eight times as large as that of a server without a container.
            killing_requests.send(running.http, 1_000_000)
            if times == 1:
                made.until(lambda: "serves again at" in running.err.read_text())
                assert running.infer("whole") == 200
                assert len(ours(client)) == 1 and ours(client) != before
                assert "the container ended (exit code 139)" in running.err.read_text()
        assert running.process.wait(60) == Code.SERVER_DIED.exit
        assert "it is not started again" in running.err.read_text()
        assert not ours(client)
    finally:
        running.process.kill()


def test_a_python_process_that_dies_is_brought_back(
    tmp_path: Path, slim: str, client: Any, repository: Path
) -> None:
    running = Serve(tmp_path, repository, *docker(slim), "--json")
    try:
        about = running.ready()
        rows = client.containers.get(about["container"]).top(ps_args="-eo pid,args")["Processes"]
        stub = [int(pid) for pid, argv in rows if "/models/step/1/model.py" in argv]
        assert len(stub) == 1
        os.kill(stub[0], signal.SIGKILL)
        made.until(lambda: "model 'step' is ready again" in running.err.read_text())
        assert running.infer("whole") == 200
        assert running.over(signal.SIGTERM) == 0
    finally:
        running.process.kill()


def test_a_model_that_fails_is_named_with_its_cause(tmp_path: Path, slim: str, repository: Path) -> None:
    made.python(repository, "raises", made.RAISES)
    made.python(repository, "exits", made.EXITS)
    said = made.trb(tmp_path, "serve", str(repository), *made.FREE, *docker(slim))
    assert said.returncode == Code.MODEL_FAILED.exit, said.stderr
    assert "raises: ValueError: boom" in said.stderr
    assert "exits: its Python process ended" in said.stderr


@pytest.mark.parametrize("how", ["private", "link"])
def test_a_repository_that_cannot_be_mounted_is_copied(
    tmp_path: Path, slim: str, client: Any, repository: Path, how: str
) -> None:
    if how == "private":
        (repository / "step" / "1" / "model.py").chmod(0o600)
        arguments: tuple[str, ...] = ("--container-user", "4321:4321")
    else:
        code = tmp_path / "code.py"
        (repository / "step" / "1" / "model.py").rename(code)
        (repository / "step" / "1" / "model.py").symlink_to(code)
        arguments = ()
    running = Serve(tmp_path, repository, *docker(slim), *arguments, "--json")
    try:
        about = running.ready()
        mount = client.containers.get(about["container"]).attrs["Mounts"][0]
        assert (mount["Type"], mount["RW"]) == ("volume", False)
        assert running.infer("whole") == 200
        assert running.over(signal.SIGTERM) == 0
        assert not ours(client)
    finally:
        with suppress(ProcessLookupError):
            running.process.kill()


def test_the_servers_output_is_shown_as_it_comes(tmp_path: Path, slim: str, repository: Path) -> None:
    running = Serve(tmp_path, repository, *docker(slim), "--logs", "--json")
    try:
        running.ready()
        made.until(lambda: "Started HTTPService" in running.err.read_text())
        assert running.over(signal.SIGTERM) == 0
        assert "Waiting for in-flight requests" in running.err.read_text()
    finally:
        running.process.kill()
