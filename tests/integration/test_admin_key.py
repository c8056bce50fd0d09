"""A server beyond loopback, or with a key: what is closed without the key, and what stays open."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import two_versions
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

from tests.support import cli
from tests.support.serve_repository import FREE, Serve, serve, trb, until, whole
from triton_repo_builder.base.errors import Code
from triton_repo_builder.produce.write import publish, versions
from triton_repo_builder.run.client import JSON, Body, HttpClient

pytestmark = pytest.mark.server

KEY = "s3cret,with:signs=0123456789"
REQUESTS = (
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/whole/load"),
    ("POST", "/v2/repository/models/whole/unload"),
    ("GET", "/v2/systemsharedmemory/status"),
    ("POST", "/v2/systemsharedmemory/region/x/register"),
    ("POST", "/v2/systemsharedmemory/unregister"),
    ("GET", "/v2/cudasharedmemory/status"),
    ("POST", "/v2/cudasharedmemory/region/x/register"),
    ("POST", "/v2/cudasharedmemory/unregister"),
    ("GET", "/v2/trace/setting"),
    ("POST", "/v2/trace/setting"),
    ("GET", "/v2/models/whole/trace/setting"),
    ("POST", "/v2/models/whole/trace/setting"),
    ("GET", "/v2/logging"),
    ("POST", "/v2/logging"),
)
Call = Callable[[Any, dict[str, str]], Any]
CALLS: dict[str, Call] = {
    "index": lambda c, h: c.get_model_repository_index(headers=h),
    "load": lambda c, h: c.load_model("whole", headers=h),
    "unload": lambda c, h: c.unload_model("nothing", headers=h),
    "system memory": lambda c, h: c.get_system_shared_memory_status(headers=h),
    "register": lambda c, h: c.register_system_shared_memory("x", "/x", 1, headers=h),
    "unregister": lambda c, h: c.unregister_system_shared_memory(headers=h),
    "cuda memory": lambda c, h: c.get_cuda_shared_memory_status(headers=h),
    "unregister cuda": lambda c, h: c.unregister_cuda_shared_memory(headers=h),
    "trace": lambda c, h: c.get_trace_settings(headers=h),
    "set trace": lambda c, h: c.update_trace_settings(settings={}, headers=h),
    "log": lambda c, h: c.get_log_settings(headers=h),
    "set log": lambda c, h: c.update_log_settings({}, headers=h),
}
WITHOUT = ({}, {"admin-key": "wrong"}, {"triton-grpc-protocol-admin-key": "wrong"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("admin")


@pytest.fixture(scope="module")
def key(folder: Path) -> Path:
    file = folder / "key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def served(folder: Path, key: Path) -> Iterator[tuple[Serve, dict[str, Any]]]:
    with serve(folder, whole(folder / "repo"), "--json", "--admin-key", str(key)) as running:
        yield running, running.ready()
        assert running.end(signal.SIGTERM) == 0


def send(url: str, method: str, path: str, headers: dict[str, str]) -> int:
    data = b"{}" if method == "POST" else b""
    return HttpClient(url).send(method, path, Body(data=data, headers=JSON | headers)).status


def test_http_refuses_what_is_restricted(served: tuple[Serve, dict[str, Any]]) -> None:
    url = served[1]["urls"]["http"]
    for headers in WITHOUT:
        assert {request: send(url, *request, headers) for request in REQUESTS} == dict.fromkeys(REQUESTS, 403)
    with_key = {
        request: send(url, *request, {"admin-key": KEY}) for request in REQUESTS if "unload" not in request[1]
    }
    assert 403 not in with_key.values()
    assert {status for (method, _), status in with_key.items() if method == "GET"} == {200}


def test_grpc_refuses_what_is_restricted(served: tuple[Serve, dict[str, Any]]) -> None:
    client = grpc.InferenceServerClient(served[1]["urls"]["grpc"])

    def refused(call: Call, headers: dict[str, str]) -> bool:
        try:
            call(client, headers)
        except InferenceServerException as error:
            return "restricted" in str(error)
        return False

    for headers in WITHOUT:
        assert [name for name, call in CALLS.items() if not refused(call, headers)] == []
    allowed = {"triton-grpc-protocol-admin-key": KEY}
    assert [name for name, call in CALLS.items() if refused(call, allowed)] == []
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("whole")
    assert client.get_model_metadata("whole").name == "whole"
    client.close()


def test_requests_health_and_statistics_need_no_key(served: tuple[Serve, dict[str, Any]]) -> None:
    running, about = served
    assert running.infer("whole") == 200
    open_paths = ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/whole", "/v2/models/whole/config")
    for path in (*open_paths, "/v2/models/stats"):
        assert send(about["urls"]["http"], "GET", path, {}) == 200


def test_commands_need_the_key(tmp_path: Path, served: tuple[Serve, dict[str, Any]], key: Path) -> None:
    running, about = served
    url = about["urls"]["http"]
    wrong = tmp_path / "wrong"
    wrong.write_text("x" * 16)
    wrong.chmod(0o600)
    for command in (("load", "whole"), ("unload", "whole"), ("provenance",)):
        for arguments in ((), ("--admin-key", str(wrong))):
            said = trb(tmp_path, *command, "--url", url, *arguments)
            assert (said.returncode, cli.kind(said.stderr)) == (Code.ADMIN_KEY.exit, Code.ADMIN_KEY)
            assert "--admin-key" in said.stderr
    for command in (("load", "whole"), ("provenance",), ("unload", "whole"), ("load", "whole")):
        done = trb(tmp_path, *command, "--url", url, "--admin-key", str(key))
        assert done.returncode == 0, done.stderr
    by_variable = cli.call("provenance", "--url", url, env={"TRB_ADMIN_KEY_FILE": str(key)})
    assert by_variable.returncode == 0, by_variable.stderr
    assert cli.call("provenance", "--url", url).returncode == Code.ADMIN_KEY.exit
    until(lambda: running.infer("whole") == 200)


def test_smoke_goes_without_the_key(tmp_path: Path, served: tuple[Serve, dict[str, Any]], key: Path) -> None:
    url, grpc_url = served[1]["urls"]["http"], served[1]["urls"]["grpc"]

    def loaded(*arguments: str) -> str:
        line = (
            "smoke",
            str(tmp_path.parent / "none"),
            "--url",
            url,
            "--grpc-url",
            grpc_url,
            "--json",
            "--no-cases",
        )
        done = trb(tmp_path, line[0], served[1]["repository"], *line[2:], *arguments)
        report = json.loads(done.stdout)
        assert done.returncode == 0, report
        return next(str(c["status"]) for c in report["checks"] if c["name"] == "models loaded")

    assert (loaded(), loaded("--admin-key", str(key))) == ("skipped", "passed")


def test_a_dead_stub_is_replaced_under_restriction(served: tuple[Serve, dict[str, Any]]) -> None:
    running, _ = served
    before = running.stub("step")
    os.kill(before, signal.SIGKILL)
    until(lambda: "is ready again" in running.err.read_text())
    assert running.stub("step") != before
    assert running.infer("whole") == 200
    running.note()


def test_it_listens_on_loopback_only_and_logs_no_key(served: tuple[Serve, dict[str, Any]]) -> None:
    running, about = served
    assert {address for address, _ in listening(running.server)} == {"127.0.0.1"}
    assert len(listening(running.server)) == 3
    assert KEY not in Path(about["log"]).read_text() + running.out.read_text() + running.err.read_text()


def test_beyond_loopback_with_a_key_that_nobody_knows(tmp_path: Path) -> None:
    repo = whole(tmp_path / "repo")
    done = trb(tmp_path, "serve", str(repo), *FREE, "--host", "0.0.0.0", "--detach", "--json")
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    try:
        assert "warning: listens on 0.0.0.0" in done.stderr
        assert {address for address, _ in listening(about["server_pid"])} <= {"0.0.0.0", "::"}
        assert send(about["urls"]["http"], "POST", "/v2/repository/index", {}) == 403
        shown = json.loads(trb(tmp_path, "status", "--json").stdout)
        assert [(server["ready"], server["loaded"]) for server in shown] == [(True, ["whole"])]
        assert trb(tmp_path, "logs").returncode == 0
        said = trb(tmp_path, "load", "whole")
        assert cli.kind(said.stderr) == Code.ADMIN_KEY
        for file in (tmp_path / "state").rglob("*"):
            secret = re.search(rb"admin-key=(\S+)", Path(f"/proc/{about['server_pid']}/cmdline").read_bytes())
            assert secret and (file.is_dir() or secret[1].split(b"\0")[0] not in file.read_bytes())
    finally:
        stopped = trb(tmp_path, "stop")
    assert stopped.returncode == 0, stopped.stderr


def test_open_apis(tmp_path: Path) -> None:
    repo = whole(tmp_path / "repo")
    with serve(tmp_path, repo, "--json", "--host", "0.0.0.0", "--open-apis") as running:
        url = running.ready()["urls"]["http"]
        assert send(url, "POST", "/v2/repository/index", {}) == 200
        assert "warning: " in running.err.read_text()
        assert running.end(signal.SIGTERM) == 0


def test_what_moves_versions_needs_the_key(tmp_path: Path, key: Path) -> None:
    short = ("--concurrency", "1", "--warmup", "100ms", "--window", "200ms", "--min-windows", "1")
    short += ("--max-windows", "1", "--protocol", "http")
    root = tmp_path / "repo"
    for number in ("one", "two"):
        tiny.tensor_model(tmp_path / number / "net.onnx")
    two_versions.change_weights(tmp_path / "two" / "net.onnx", ("W",))
    for number in ("one", "two"):
        made = tiny.make(tmp_path / number / "net.onnx", root, golden=True, version=1 + (number == "two"))
        publish.publish(publish.prepare(versions.place(made, root, serve=False), root))
    revision = Path(shutil.copytree(root, tmp_path / "revision"))
    with serve(tmp_path, root, "--json", "--admin-key", str(key)) as running:
        urls = running.ready()["urls"]
        address = ("--url", urls["http"], "--grpc-url", urls["grpc"])
        commands = (
            ("promote", "net", str(root), "--version", "2", *address),
            ("rollback", "net", str(root), *address),
            ("apply", str(revision), *address),
            ("verify", str(revision), "--url", urls["http"]),
            ("bench", str(root), *address, *short),
        )
        for command in commands:
            said = trb(tmp_path, *command)
            assert (said.returncode, cli.kind(said.stderr)) == (Code.ADMIN_KEY.exit, Code.ADMIN_KEY), command
            done = trb(tmp_path, *command, "--admin-key", str(key))
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        running.note()
        assert running.end(signal.SIGTERM) == 0


def test_verify_refuses_before_anything_starts(tmp_path: Path) -> None:
    said = trb(tmp_path, "serve", str(whole(tmp_path / "repo")), *FREE, "--verify")
    assert cli.kind(said.stderr) == Code.NOT_FOUND
    assert "tritonserver" not in said.stderr


def listening(pid: int) -> set[tuple[str, int]]:
    """(address, port) of each socket on which a process listens; gRPC takes IPv6 sockets also for IPv4."""
    handles = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in handles:
                address, port = columns[1].split(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(digits: str) -> str:
    """The kernel prints an address as words of the machine's (little-endian) order."""
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)
