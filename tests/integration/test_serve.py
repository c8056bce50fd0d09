"""``trb serve``, ``status`` and ``stop`` on a real tritonserver; models that work, fail, hang and die."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import tiny

from tests.support import needs
from tests.support.cli import call, kind
from tests.support.serve_repository import (
    DIES,
    EXITS,
    FREE,
    HALF,
    RAISES,
    ensemble,
    files,
    python,
    serve,
    text,
    trb,
    until,
    whole,
)
from tests.support.servers import free
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run import serve as serve_module
from triton_repo_builder.run.serve.processes import stubs

pytestmark = pytest.mark.server


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A step below an ensemble. The space and the quote in the path are part of the test."""
    return whole(tmp_path / "user's repo")


def curl_lines(said: str) -> list[str]:
    return [line for line in said.splitlines() if "curl " in line]


def test_prints_endpoints_and_curl_lines_that_work(tmp_path: Path, repository: Path) -> None:
    text(repository, "text")
    python(repository, "image", dims="3, 224, 224")
    python(repository, "half", HALF, out="FP16")
    (repository / "docs").mkdir()
    golden = {
        "endpoint": "whole",
        "recorded_with": "test",
        "tolerance": {"alone": 0, "batched": 0, "reason": "test"},
        "cases": [
            {
                "name": "first",
                "inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [7.5, 1.25]}],
                "outputs": [{"name": "Y", "datatype": "FP32", "shape": [1, 2], "data": [15.0, 2.5]}],
            }
        ],
    }
    (repository / "whole" / "smoke.json").write_text(json.dumps(golden))
    before = files(repository)
    with serve(tmp_path, repository) as running:
        until(lambda: "ready: HTTP" in running.out.read_text() or running.process.poll() is not None)
        said = running.out.read_text()
        for words in ("whole", "X FP32 [-1, 2]", "Y FP32 [-1, 2]", "TEXT BYTES [-1, 1]", "[-1, 3, 224, 224]"):
            assert words in said
        assert " step " not in said
        lines = curl_lines(said)
        assert len(lines) == 5
        assert "# text, one text (the answers to several would be one flat list, without a shape):" in said
        assert "# text, 1 to 8 texts in a request:" in said
        assert any("7.5, 1.25" in line for line in lines)
        for line in lines:
            result = subprocess.run(
                ["bash", "-c", f"{line} -w '%{{http_code}}' -o answer"],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                check=False,
            )
            assert result.stdout == "200", (line, result, (tmp_path / "answer").read_bytes()[:500])
        err = running.err.read_text()
        assert "docs/ is not a model" in err
        assert running.end(signal.SIGTERM) == 0
    assert files(repository) == before


def test_ctrl_c_leaves_nothing(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json") as running:
        about = running.ready()
        assert [endpoint["name"] for endpoint in about["endpoints"]] == ["whole"]
        assert running.infer("whole") == 200
        assert running.end(signal.SIGINT) == 0


def test_what_trb_wrote_is_taken_as_it_stands(tmp_path: Path) -> None:
    """Completing a configuration would start each Python model twice; what needs that later is told so."""
    root = tmp_path / "repository"
    original = tiny.tensor_model(tmp_path / "original" / "model.onnx")
    tiny.put(original, root, name="net")

    with serve(tmp_path, root, "--json") as running:
        running.ready()
        (root / "bare" / "1").mkdir(parents=True)
        shutil.copyfile(original, root / "bare" / "1" / "model.onnx")
        said = trb(tmp_path, "load", "bare", "--url", running.http).stderr
        assert "bare: failed to open text file for read" in said
        assert "unless trb wrote all of those that were there" in said
    with serve(tmp_path, root, "--json") as running:
        assert {endpoint["name"] for endpoint in running.ready()["endpoints"]} == {"net", "bare"}


def test_all_failures_are_named_with_their_cause(tmp_path: Path, repository: Path) -> None:
    python(repository, "imports", "import nosuchmodule\n")
    python(repository, "raises", RAISES)
    python(repository, "exits", EXITS)
    python(repository, "missing", None)
    python(repository, "newer")
    ensemble(repository, "above", "raises")
    ensemble(repository, "top", "above")
    config = repository / "newer" / "config.pbtxt"
    # A current client library knows this field, the server of 24.10 does not: only its log says why.
    config.write_text(config.read_text() + "model_metrics { }\n")
    (repository / "syntax" / "1").mkdir(parents=True)
    (repository / "syntax" / "config.pbtxt").write_text('backend: "python"\nmax_batch_size: two\n')
    before = files(repository)
    said = trb(tmp_path, "serve", str(repository), *FREE)
    assert said.returncode == Code.MODEL_FAILED.exit
    error = said.stderr[said.stderr.index("error: ") :]
    assert "6 models cannot be loaded" in error
    assert "imports: ModuleNotFoundError: No module named 'nosuchmodule'" in error
    assert re.search(r"raises: ValueError: boom\n.*/raises/1/model\.py\(\d+\): initialize", error)
    assert "exits: its Python process ended while loading (exit code 3)" in error
    assert f"missing: {repository}/missing/1/model.py is missing" in error
    assert "newer: config.pbtxt:6:15: " in error
    assert "model_metrics" in error
    assert "warning: newer uses what this server, release 24.10, lacks: model_metrics (" in said.stderr
    assert "syntax: config.pbtxt:2:17: " in error
    assert "above" not in error
    assert "top" not in error
    log = re.search(r"whole log is (\S+)", error)
    assert log and "Poll failed" in Path(log[1]).read_text()
    assert files(repository) == before
    assert not list((tmp_path / "tmp").glob("trb-*/"))


def test_a_stub_that_dies_at_start_is_named_and_the_server_stopped(tmp_path: Path, repository: Path) -> None:
    python(repository, "dies", "import os\nos.write(2, b'last words\\n')\nos._exit(3)\n")
    said = trb(tmp_path, "serve", str(repository), *FREE)
    assert said.returncode == Code.MODEL_FAILED.exit
    assert "dies: its Python process ended while starting (exit code 3)" in said.stderr
    assert "last words" in said.stderr
    assert "step:" not in said.stderr
    assert not list((tmp_path / "tmp").glob("trb-*/"))


def test_a_stub_that_was_never_seen_alive_is_attributed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a busy machine, where it is a zombie before anyone looks; then its arguments are gone.
    monkeypatch.setattr(stubs.StubProcesses, "_describe", lambda self, pid: None)
    python(repository, "dies", "import os\nos.write(2, b'last words\\n')\nos._exit(3)\n")
    options = free()
    with pytest.raises(TrbError) as caught:
        serve_module.start(repository, options, engine="embedded")
    # Whose it was is not known; on a busy machine the other model is starting as well.
    assert re.search(
        r"^  dies(, step)?: .* ended while starting \(exit code 3\)$", caught.value.message, re.M
    )
    assert "last words" in caught.value.message
    assert "whole" not in caught.value.message


def test_a_load_that_takes_too_long_is_named(tmp_path: Path, repository: Path) -> None:
    python(repository, "slow", "import time\ntime.sleep(600)\n")
    said = trb(tmp_path, "serve", str(repository), "--load", "slow", "--timeout", "2", *FREE)
    assert said.returncode == Code.TIMED_OUT.exit
    assert "not ready after 2 s: slow" in said.stderr
    assert not list((tmp_path / "tmp").glob("trb-*/"))


def test_interrupted_while_loading(tmp_path: Path, repository: Path) -> None:
    python(repository, "slow", "import time\ntime.sleep(600)\n")
    with serve(tmp_path, repository, "--json") as running:
        until(lambda: "loading 3 models" in running.err.read_text())
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        # The load hangs in the server, so it cannot end by itself; the second signal does not wait for that.
        assert running.end(signal.SIGTERM) == 130


@pytest.mark.slow
def test_a_dead_stub_is_replaced_until_it_dies_too_often(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json", "--restarts", "0") as running:
        running.ready()
        for number in (1, 2, 3):
            stub = running.stub("step")
            os.kill(stub, signal.SIGKILL)
            if number == 2:
                # A request to a dead stub makes the later unload hang inside the server.
                assert running.infer("whole") == 500
            until(lambda: running.err.read_text().count("'step' is ready again") == number)  # noqa: B023
            assert "killed by SIGKILL" in running.err.read_text()
            assert f"({number} of 3)" in running.err.read_text()
            assert running.infer("step") == 200
            assert running.infer("whole") == 200
            running.note()
        os.kill(running.stub("step"), signal.SIGKILL)
        assert running.end() == Code.MODEL_FAILED.exit
        assert "its Python process died again" in running.err.read_text()
        assert "after 3 reloads, each within 60 s" in running.err.read_text()


@pytest.mark.slow
def test_a_model_that_kills_its_stub_does_not_stay(tmp_path: Path, repository: Path) -> None:
    python(repository, "deadly", DIES)
    with serve(tmp_path, repository, "--json") as running:
        running.ready()
        assert running.infer("deadly") == 500
        until(lambda: "'deadly' is ready again" in running.err.read_text())
        assert "deadly_0_0: exit code 5" in running.err.read_text()
        assert running.infer("whole") == 200
        running.note()
        assert running.end(signal.SIGINT) == 0


def test_death_of_the_server_is_reported(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json", "--restarts", "0") as running:
        running.ready()
        os.kill(running.server, signal.SIGSEGV)
        assert running.end() == Code.SERVER_DIED.exit
        assert "tritonserver ended" in running.err.read_text()


def test_the_server_does_not_outlive_a_killed_trb(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--json") as running:
        running.ready()
        assert running.end(signal.SIGKILL) == -signal.SIGKILL


def test_busy_port_names_option_and_holder(tmp_path: Path, repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = trb(tmp_path, "serve", str(repository), *FREE, "--grpc-port", str(port))
    assert said.returncode == Code.PORT_BUSY.exit
    assert f"--grpc-port: port {port} is in use by " in said.stderr
    assert f"(process {os.getpid()})" in said.stderr
    assert "0 picks a free one" in said.stderr


def test_detach_status_stop(tmp_path: Path, repository: Path) -> None:
    said = trb(tmp_path, "serve", str(repository), *FREE, "--detach", "--json")
    try:
        assert said.returncode == 0, said.stderr
        about = json.loads(said.stdout)
        listed = json.loads(trb(tmp_path, "status", "--json").stdout)
        assert [(entry["pid"], entry["ready"]) for entry in listed] == [(about["pid"], True)]
        table = trb(tmp_path, "status").stdout
        assert about["urls"]["http"] in table
        assert "whole" in table
        other = trb(tmp_path, "stop", "other")
        assert other.returncode == Code.NOT_RUNNING.exit
        assert "user's repo" in other.stderr
    finally:
        stopped = trb(tmp_path, "stop", "--all")
    assert stopped.returncode == 0
    assert not Path(f"/proc/{about['server_pid']}").exists()
    assert not list((tmp_path / "tmp").glob("trb-*"))
    assert trb(tmp_path, "status").stdout == "no servers run in the background\n"
    assert trb(tmp_path, "stop").returncode == Code.NOT_RUNNING.exit
    assert not list((tmp_path / "state" / "trb").iterdir())


def test_detached_servers_have_names(tmp_path: Path, repository: Path) -> None:
    try:
        for name in (("--name", "mini"), (), ()):
            said = trb(tmp_path, "serve", str(repository), *FREE, "--detach", *name)
            assert said.returncode == 0, said.stderr
        assert f"trb stop {shlex.quote(repository.name + '-2')}\n" in said.stdout
        taken = trb(tmp_path, "serve", str(repository), *FREE, "--detach", "--name", "mini")
        assert kind(taken.stderr) is Code.USAGE
        listed = json.loads(trb(tmp_path, "status", "--json").stdout)
        assert [server["name"] for server in listed] == ["mini", repository.name, f"{repository.name}-2"]
        (one,) = json.loads(trb(tmp_path, "status", "mini", "--json").stdout)
        assert one == listed[0]
        assert "grpc" in trb(tmp_path, "logs", "mini").stdout.lower()
        assert trb(tmp_path, "stop", "mini").stdout == f"stopped mini ({one['pid']})\n"
        assert trb(tmp_path, "status", "mini").returncode == Code.NOT_RUNNING.exit
    finally:
        trb(tmp_path, "stop", "--all")
    assert trb(tmp_path, "serve", str(repository), *FREE, "--name", "mini").returncode == 2


def test_detach_hands_on_a_failure(tmp_path: Path, repository: Path) -> None:
    python(repository, "raises", RAISES)
    said = trb(tmp_path, "serve", str(repository), *FREE, "--detach")
    assert said.returncode == Code.MODEL_FAILED.exit
    assert "raises: ValueError: boom" in said.stderr
    assert json.loads(trb(tmp_path, "status", "--json").stdout) == []


def test_a_detached_server_that_gave_up_is_named_once(tmp_path: Path, repository: Path) -> None:
    about = json.loads(
        trb(tmp_path, "serve", str(repository), *FREE, "--detach", "--json", "--restarts", "0").stdout
    )
    os.kill(about["server_pid"], signal.SIGKILL)
    until(lambda: not Path(f"/proc/{about['pid']}").exists())
    status = trb(tmp_path, "status")
    assert "user's repo has ended: error: tritonserver ended (killed by SIGKILL)" in status.stderr
    assert status.stdout == "no servers run in the background\n"
    assert trb(tmp_path, "status").stderr == ""


def fill(disk: Path, left: int) -> None:
    """Fill a disk but for so many bytes."""
    free_now = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(max(0, free_now.f_bavail * free_now.f_frsize - left)))


def test_a_full_disk_for_temporary_files_is_no_bug(tmp_path: Path, repository: Path) -> None:
    with tiny.small_disk(tmp_path / "disk", "4m") as mounted:
        if not mounted:
            needs.unavailable("this user may not mount a file system")
        fill(tmp_path / "disk", 500_000)
        said = call("serve", repository, *FREE, env={"TMPDIR": str(tmp_path / "disk")})
    assert kind(said.stderr) == Code.DISK_FULL
    assert f"{tmp_path / 'disk'}: the disk is full; no server was started" in said.stderr
    assert "choose another disk by TMPDIR" in said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 4096])
def test_a_full_disk_for_the_state_of_a_detached_server_is_said(
    left: int, tmp_path: Path, repository: Path
) -> None:
    with tiny.small_disk(tmp_path / "state", "1m") as mounted:
        if not mounted:
            needs.unavailable("this user may not mount a file system")
        (tmp_path / "state" / "trb").mkdir()
        fill(tmp_path / "state", left)
        said = trb(tmp_path, "serve", str(repository), *FREE, "--detach")
        assert kind(said.stderr) == Code.DISK_FULL
        assert "free some space, or choose another disk by XDG_STATE_HOME" in said.stderr
        assert list((tmp_path / "state" / "trb").iterdir()) == []
