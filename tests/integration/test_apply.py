"""``trb apply`` on a real tritonserver: it converges, loses no request, goes back, and does nothing twice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import two_versions

from tests.integration.test_promote import Load, served
from tests.support import altered, cli
from tests.support.raw_server import raw_server
from tests.support.serve_repository import free_port, until
from tests.support.servers import free
from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, Exit
from triton_repo_builder.repository import CONFIG
from triton_repo_builder.run import serve as serve_module
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.serve.loading import load_unload

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def revisions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``one``; ``two``: other tokenizer and weights under the same number, and a further endpoint."""
    folder = tmp_path_factory.mktemp("revisions")
    first, second = two_versions.make(folder)
    tiny.put(first, folder / "revisions" / "one", golden=True)
    tiny.put(second, folder / "revisions" / "two", golden=True)
    tiny.put(tiny.tensor_model(folder / "net.onnx"), folder / "revisions" / "two", golden=True)
    return folder / "revisions"


@pytest.fixture
def root(revisions: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(revisions / "one", tmp_path / "served"))


@contextmanager
def serve(root: Path) -> Iterator[serve_module.RunningServer]:
    with serve_module.start(root, free(), engine="embedded") as server:
        yield server


def apply(
    revision: Path, server: serve_module.RunningServer, *more: str
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Exit code, the result, and its endpoints by name."""
    done = cli.call("apply", revision, *address(server), "--json", *more)
    result = json.loads(done.stdout)
    return done.returncode, result, {each["endpoint"]: each for each in result["endpoints"]}


def address(server: serve_module.RunningServer) -> tuple[str, ...]:
    return ("--url", server.urls.http, "--grpc-url", server.urls.grpc)


def golden(repo: Path) -> dict[str, Any]:
    """Text → scores of the original model."""
    found = {}
    for case in json.loads((repo / "sentiment" / "smoke.json").read_text())["cases"]:
        if [item["name"] for item in case["inputs"]] == ["TEXT"]:
            scores = next(item for item in case["outputs"] if item["name"] == "scores")
            found[case["inputs"][0]["data"][0]] = np.array(scores["data"]).ravel()
    return found


def fill(disk: Path) -> Path:
    """A file that takes up all room of a file system."""
    file = disk / "fill"
    with file.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(1 << 12)):
            pass
    return file


def contents(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_it_changes_over_under_load_and_does_nothing_twice(revisions: Path, root: Path) -> None:
    one, two = revisions / "one", revisions / "two"
    before = contents(root)
    (root / "sentiment_model" / "notes.txt").write_text("mine")
    with serve(root) as server:
        code, _, endpoints = apply(two, server, "--dry-run")
        assert code == 1
        assert {name: each["action"] for name, each in endpoints.items()} == {
            "net": "load",
            "sentiment": "promote",
        }
        assert contents(root) == {**before, "sentiment_model/notes.txt": b"mine"}
        with Load(server.urls.http, golden(one), golden(two)) as load:
            code, result, _ = apply(two, server, "--no-preflight")
        assert (code, result["applied"]) == (0, True)
        assert load.failures == []
        assert set(load.seen) <= {"1", "2"}, load.seen
        assert served(server).keys() == {"net", "sentiment", "sentiment_model", "sentiment_tokenizer"}
        assert {number for numbers in served(server).values() for number in numbers} == {"1"}
        assert contents(root) == {**contents(two), "sentiment_model/notes.txt": b"mine"}
        assert cli.call("verify", two, "--url", server.urls.http).returncode == 0

        code, result, _ = apply(two, server)
        assert (code, result["loads"], result["drift"]) == (0, 0, False)
        assert apply(two, server, "--dry-run")[0] == 0

        # What the server lost comes back; what the revision does not have goes.
        HttpClient(server.urls.http).unload("net")
        assert apply(two, server, "--no-preflight")[2]["net"]["action"] == "load"
        shrunk = Path(shutil.copytree(two, root.parent / "shrunk"))
        cli.trb("remove", "net", "--output", shrunk)
        code, result, endpoints = apply(shrunk, server)
        assert (code, endpoints["net"]["action"], endpoints["sentiment"]["action"]) == (
            0,
            "unload",
            "nothing",
        )
        assert result["loads"] == 0
        assert "net" not in served(server)
        assert not (root / "net").exists()


@pytest.mark.slow
def test_an_endpoint_that_fails_goes_back_and_others_are_applied(
    revisions: Path, root: Path, tmp_path: Path
) -> None:
    # The recorded answers are those of the other model: smoke must find that out.
    bad = Path(shutil.copytree(revisions / "two", tmp_path / "bad"))
    cases = (revisions / "one" / "sentiment" / "smoke.json").read_bytes()
    altered.record(bad, "sentiment/smoke.json", cases)
    altered.seal(bad, "sentiment", 1)
    before = contents(root)
    with serve(root) as server:
        with Load(server.urls.http, golden(revisions / "one"), golden(revisions / "two")) as load:
            code, _, endpoints = apply(bad, server, "--no-preflight")
        assert code == Code.APPLY_FAILED.exit
        assert endpoints["sentiment"]["failed"]["code"] == Code.APPLY_FAILED.kind
        assert endpoints["net"]["failed"] is None
        assert load.failures == []
        assert set(load.seen) <= {"1", "2"}, load.seen
        after = contents(root)
        assert {path: after[path] for path in before if path != "manifest.json"} == {
            path: content for path, content in before.items() if path != "manifest.json"
        }
        assert HttpClient(server.urls.http).ready()
        assert "net" in served(server)
        assert cli.call("smoke", root, *address(server), "--clients", "2").returncode == 0
        preflight = cli.call("apply", bad, *address(server))
        assert cli.kind(preflight.stderr) == Code.APPLY_FAILED
        assert contents(root) == after


@pytest.mark.slow
def test_a_killed_apply_is_taken_up_by_the_next(revisions: Path, root: Path) -> None:
    two = revisions / "two"
    with serve(root) as server:
        argv = [*cli.ARGV, "apply", str(two), *address(server), "--no-preflight"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as killed:
            assert killed.stderr is not None
            for line in killed.stderr:
                if "runs the new versions" in line:
                    break
            killed.send_signal(signal.SIGKILL)
        # The folder can be served, and is neither the one nor the other: it does not travel.
        for command in (("check",), ("commit", "-m", "Deploy"), ("push", "oci://127.0.0.1:9/models/a:1")):
            refused = cli.call(command[0], *command[1:], root)
            assert cli.kind(refused.stderr) == Code.APPLY_FAILED
            assert "between two states" in refused.stderr
        assert apply(two, server)[0] == 0
        assert cli.call("check", root).returncode == 0
        assert contents(root) == contents(two)
        assert cli.call("verify", two, "--url", server.urls.http).returncode == 0


@pytest.mark.slow
def test_a_full_disk_and_a_server_that_ends_are_named(revisions: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with tiny.small_disk(disk, "40m"):
        root = Path(shutil.copytree(revisions / "one", disk / "served"))
        before = contents(root)
        with serve(root) as server:
            full = fill(disk)
            done = cli.call("apply", revisions / "two", *address(server), "--no-preflight")
            assert (done.returncode, cli.kind(done.stderr)) == (Code.DISK_FULL.exit, Code.DISK_FULL)
            assert str(root) in done.stderr and "the repository is unchanged" in done.stderr
            assert apply(revisions / "two", server, "--dry-run")[0] == Exit.CHECKS
            os.truncate(full, full.stat().st_size - (16 << 10))  # it can begin, and not end
            code, _, endpoints = apply(revisions / "two", server, "--no-preflight")
            full.unlink()
            failed = endpoints["sentiment"]["failed"]
            assert (code, failed["code"]) == (Code.APPLY_FAILED.exit, Code.DISK_FULL.kind)
            assert "could not be loaded" not in failed["error"]
            assert contents(root) == before and [each.name for each in disk.iterdir()] == [root.name]
            assert cli.call("verify", revisions / "one", "--url", server.urls.http).returncode == 0

            pid = load_unload.find(server.urls.http).pid
            argv = [*cli.ARGV, "apply", str(revisions / "two"), *address(server), "--no-preflight"]
            with subprocess.Popen(
                argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as applying:
                assert applying.stderr is not None
                for line in applying.stderr:
                    if "net: load" in line:
                        os.kill(pid, signal.SIGKILL)
                        break
                stderr = applying.stderr.read()
                assert applying.wait() == Code.APPLY_FAILED.exit
            assert "server ended" in stderr or "does not answer" in stderr
            assert "choose a folder" not in stderr
            assert contents(root) == before


@pytest.mark.slow
def test_another_interface_needs_an_interruption(root: Path, tmp_path: Path) -> None:
    # Three labels become five: the step's old and new configuration cannot be loaded at once.
    tiny.put(tiny.classifier(tmp_path / "five" / "sentiment", labels=5), tmp_path / "repo", golden=True)
    before = contents(root)
    with serve(root) as server:
        code, _, endpoints = apply(tmp_path / "repo", server, "--no-preflight")
        assert code == Code.APPLY_FAILED.exit
        assert endpoints["sentiment"]["failed"]["code"] == Code.APPLY_FAILED.kind
        assert contents(root) == before
        assert apply(tmp_path / "repo", server, "--interrupt")[0] == 0
        assert contents(root) == contents(tmp_path / "repo")
        assert [port.shape[-1] for port in HttpClient(server.urls.http).endpoint("sentiment").outputs][
            -1
        ] == 5


@pytest.mark.slow
def test_it_takes_the_folder_that_the_server_reads(root: Path, revisions: Path, tmp_path: Path) -> None:
    with serve(root) as server:
        other = cli.call("apply", revisions / "one", *address(server), "--to", revisions / "two")
        assert cli.kind(other.stderr) == Code.USAGE
        lost = Path(shutil.copytree(revisions / "one", tmp_path / "lost"))
        (lost / "manifest.json").unlink()
        assert cli.kind(cli.call("apply", lost, *address(server)).stderr) == Code.REPOSITORY_UNREADABLE
        edited = root / "sentiment_model" / CONFIG
        edited.write_text(edited.read_text() + "# mine\n")
        code, _, endpoints = apply(revisions / "two", server, "--no-preflight")
        assert endpoints["sentiment"]["failed"]["code"] == Code.EDITED_FILE.kind
        assert code == Code.APPLY_FAILED.exit
        assert repository.read(root).model("net") is not None


@pytest.mark.slow
def test_a_model_of_your_own_in_the_way_is_not_called_an_edit(root: Path, revisions: Path) -> None:
    mine = Path(shutil.copytree(revisions / "two" / "net", root / "net")) / CONFIG
    with serve(root) as server:
        code, _, endpoints = apply(revisions / "two", server, "--no-preflight")
    assert code == Code.APPLY_FAILED.exit and mine.is_file()
    said = endpoints["net"]["failed"]["error"]
    assert "not written by trb: net/1/model.onnx, net/config.pbtxt" in said and "changed since" not in said


def test_nothing_is_changed_where_smoke_could_not_ask(revisions: Path, root: Path) -> None:
    """The gRPC address that is taken if none is named is the next port, which may be anybody's."""
    before = contents(root)
    with serve(root) as server:
        closed = f"127.0.0.1:{free_port()}"
        said = cli.call("apply", revisions / "two", "--url", server.urls.http, "--grpc-url", closed)
        assert cli.kind(said.stderr) == Code.UNREACHABLE
        assert "--grpc-url" in said.stderr
        assert "steps pinned" not in said.stderr
        assert contents(root) == before
        dry = cli.call(
            "apply", revisions / "two", "--url", server.urls.http, "--grpc-url", closed, "--dry-run"
        )
        assert dry.returncode == Code.FAILED_CHECKS.exit


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "poll"])
def test_a_server_that_loads_nothing_on_request_is_left_alone(
    mode: str, revisions: Path, root: Path, tmp_path: Path
) -> None:
    """One that polls would take up every state of the folder on the way."""
    before = contents(root)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    with raw_server(root, tmp_path, arguments=(f"--model-control-mode={mode}",)) as server:
        where = ("--url", f"http://{server.http}", "--grpc-url", server.grpc)
        until(lambda: HttpClient(f"http://{server.http}", 10).answers_ready())
        said = cli.call("apply", revisions / "two", *where)
        assert cli.kind(said.stderr) == Code.NOT_EXPLICIT
        assert contents(root) == before
        assert {path: path.stat().st_mtime_ns for path in times} == times
        assert cli.call("apply", revisions / "one", *where).returncode == 0  # nothing to do
