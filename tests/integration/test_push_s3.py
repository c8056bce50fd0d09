"""``trb push`` to moto's S3 server, and the real tritonserver loading from it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import s3_server
from tests.support import serve_repository as made
from tests.support.cli import kind, trb
from triton_repo_builder.base.errors import Code
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_json


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.running(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.use(monkeypatch)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two small models; the ensemble's version directory is empty, and bytecode lies about."""
    root = tmp_path / "repository"
    made.python(root, "step")
    made.ensemble(root, "whole", "step")
    (root / "whole" / "1" / ".gitkeep").unlink()
    (root / "step" / "1" / "__pycache__").mkdir()
    (root / "step" / "1" / "__pycache__" / "model.pyc").write_bytes(b"bytecode")
    (root / "step" / "1" / "data.bin").write_bytes(bytes(range(256)) * 100_000)
    return root


def url(address: str, request: pytest.FixtureRequest) -> str:
    return f"s3://{address}/{s3_server.BUCKET}/{request.node.name}"


def push(tmp: Path, *arguments: str) -> dict[str, Any]:
    done = made.trb(tmp, "push", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_arrives_is_the_repository(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    told = push(tmp_path, where, str(repository), "--dry-run")
    assert told["dry_run"]
    assert s3_server.keys(address, request.node.name) == {}
    pushed = push(tmp_path, where, str(repository))
    assert (pushed["revision"], pushed["sent"]) == (told["revision"], told["sent"])
    digest = pushed["revision"].removeprefix("sha256:")
    found = s3_server.keys(address, f"{request.node.name}/")
    root = f"{request.node.name}/revisions/{digest}"
    pointer = json.loads(found.pop(f"{request.node.name}/current.json"))
    assert (pointer["revision"], pointer["path"]) == (f"sha256:{digest}", f"revisions/{digest}")
    index = found.pop(f"{root}.json")
    assert hashlib.sha256(index).hexdigest() == digest
    arrived = {key.removeprefix(f"{root}/"): data for key, data in found.items()}
    assert arrived.pop("whole/1/.gitkeep") == b""
    there = {
        path.relative_to(repository).as_posix(): path.read_bytes()
        for path in repository.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert arrived == there
    listed = json.loads(index)["files"]
    assert {path: fact["sha256"] for path, fact in listed.items() if path in arrived} == {
        path: hashlib.sha256(data).hexdigest() for path, data in arrived.items()
    }
    again = push(tmp_path, where, str(repository))
    assert again["copied"] == []
    assert (again["sent"], again["previous"], again["revision"]) == (
        [],
        pushed["revision"],
        pushed["revision"],
    )


def test_damage_and_absence_are_sent_again_the_rest_is_not(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    digest = push(tmp_path, where, str(repository))["revision"].removeprefix("sha256:")
    root = f"{request.node.name}/revisions/{digest}"
    store = s3_server.client(address)
    size = len(store.get_object(Bucket=s3_server.BUCKET, Key=f"{root}/step/1/model.py")["Body"].read())
    # As long as the right one: only its digest tells.
    store.put_object(Bucket=s3_server.BUCKET, Key=f"{root}/step/1/model.py", Body=b"#" * size)
    store.delete_object(Bucket=s3_server.BUCKET, Key=f"{root}/whole/config.pbtxt")
    refused = made.trb(tmp_path, "pull", where, str(tmp_path / "pulled"))
    assert refused.returncode == Code.DIGEST_MISMATCH.exit
    assert f"{digest}/step/1/model.py: has sha256" in refused.stderr
    assert not (tmp_path / "pulled").exists()
    again = push(tmp_path, where, str(repository))
    assert again["sent"] == ["step/1/model.py", "whole/config.pbtxt"]
    assert made.trb(tmp_path, "pull", where, str(tmp_path / "pulled")).returncode == 0


# Of seven writes: among the files, before the index, before the pointer.
@pytest.mark.slow
@pytest.mark.parametrize("arrived", [2, 5, 6])
def test_a_push_that_is_killed_goes_on_and_readers_see_the_old_revision_until_it_is_whole(
    tmp_path: Path, address: str, repository: Path, arrived: int
) -> None:
    where = f"s3://{address}/{s3_server.BUCKET}/killed-{arrived}"
    old = push(tmp_path, where, str(repository))["revision"]
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# newer\n")
    with Stalling(address, stop_after=arrived) as proxy:
        argv = [sys.executable, "-m", "triton_repo_builder", "push"]
        through = where.replace(address, proxy.address)
        child = subprocess.Popen([*argv, through, str(repository)], env=made.environment(tmp_path))
        assert proxy.stalled.wait(60)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert made.trb(tmp_path, "pull", where, str(tmp_path / "meanwhile")).returncode == 0
    assert "newer" not in (tmp_path / "meanwhile" / "step" / "1" / "model.py").read_text()
    done = push(tmp_path, where, str(repository))
    assert done["previous"] == old != done["revision"]
    # Some were copied and some sent before the next was cut off: whatever arrived does not travel again.
    assert len(done["sent"]) + len(done["copied"]) == max(done["files"] - arrived, 0)
    assert "step/1/data.bin" not in done["sent"]
    pulled = tmp_path / "pulled"
    assert made.trb(tmp_path, "pull", where, str(pulled)).returncode == 0
    assert "newer" in (pulled / "step" / "1" / "model.py").read_text()
    first = tmp_path / "first"
    assert made.trb(tmp_path, "pull", f"{where}@{old}", str(first)).returncode == 0
    assert (first / "step" / "1" / "model.py").read_text() == made.HEALTHY
    assert (first / "whole" / "1" / ".gitkeep").exists()


def test_readers_of_two_pushes_at_once_see_one_whole_revision_or_the_other(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    push(tmp_path, where, str(repository))
    (repository / "step" / "1" / "data.bin").write_bytes(b"small")
    children = []
    for number in range(2):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(repository, copy)
        (copy / "step" / "1" / "model.py").write_text(made.HEALTHY + f"# {number}\n")
        argv = [sys.executable, "-m", "triton_repo_builder", "push", where, str(copy), "--json"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        children.append(subprocess.Popen(argv, env=made.environment(tmp_path), **pipes))
    while any(child.poll() is None for child in children):
        read = made.trb(tmp_path, "pull", where, str(tmp_path / "read"), "--force")
        assert read.returncode == 0, read.stderr
    said = [child.communicate() for child in children]
    # The later one is current; the other one may have been told so at once.
    for child, (_, stderr) in zip(children, said, strict=True):
        assert child.returncode == 0 or "another push made" in stderr, stderr
    done = [json.loads(out).get("revision") for out, _ in said if out]
    pulled = made.trb(tmp_path, "pull", where, str(tmp_path / "read"), "--force", "--json")
    assert json.loads(pulled.stdout)["revision"] in done


class Stalling:
    """A proxy of bytes that lets some uploads through and holds the next one for ever."""

    def __init__(self, target: str, *, stop_after: int) -> None:
        self.stalled = threading.Event()
        self._left = stop_after
        self._lock = threading.Lock()
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                for source, sink, watched in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=(source, sink, watched), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                # A client sends each request's first line as the start of a piece.
                if watched and data.startswith(b"PUT "):
                    with self._lock:
                        self._left -= 1
                    if self._left < 0:
                        self.stalled.set()
                        return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Stalling:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()


def test_pull_touches_nothing_it_should_not(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    push(tmp_path, where, str(repository))
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine").write_text("mine")
    refused = made.trb(tmp_path, "pull", where, str(target))
    assert (refused.returncode, made.files(target)) == (Code.OUTPUT_FOREIGN.exit, ["mine"])
    assert made.trb(tmp_path, "pull", where, str(target), "--force").returncode == 0
    before = (target / "step" / "config.pbtxt").stat()
    again = made.trb(tmp_path, "pull", where, str(target))
    assert again.returncode == 0
    assert "already" in again.stdout
    assert (target / "step" / "config.pbtxt").stat().st_ino == before.st_ino
    assert not list(tmp_path.glob(".target*"))


def test_refuses_what_fails_the_check(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    config = repository / "step" / "config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_FP32", "TYPE_FLOAT"))
    refused = made.trb(tmp_path, "push", where, str(repository))
    assert refused.returncode == 1
    assert "TYPE_FLOAT" in refused.stderr
    assert s3_server.keys(address, request.node.name) == {}
    assert made.trb(tmp_path, "push", where, str(repository), "--force").returncode == 0


@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        ({"AWS_PROFILE": "absent"}, 10, "name a profile of ~/.aws/config in AWS_PROFILE"),
        ({"AWS_ENDPOINT_URL": "junk"}, 10, "Invalid endpoint: junk"),
        pytest.param(
            {"AWS_ENDPOINT_URL": "http://nowhere.invalid:9000"},
            10,
            "connect to host nowhere.invalid:9000",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_settings_that_cannot_be_right_are_named(
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    code: int,
    words: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    failed = made.trb(tmp_path, "push", "s3://models/x", str(repository))
    assert (failed.returncode, words in failed.stderr) == (code, True), failed.stderr
    assert "Traceback" not in failed.stderr
    assert "fix: " in failed.stderr


def test_a_pull_names_the_argument_that_it_has(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "file").touch()
    failed = made.trb(tmp_path, "pull", url(address, request), str(tmp_path / "file" / "folder"))
    assert (kind(failed.stderr), "as FOLDER" in failed.stderr) == (Code.OUTPUT_NOT_WRITABLE, True), (
        failed.stderr
    )
    assert "--output" not in failed.stderr
    assert "[FOLDER]" in made.trb(tmp_path, "pull", "--help").stdout


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("s3://{address}/nobucket/x", Code.STORAGE_MISSING),
        ("s3://{address}/models@sha256:12", Code.BAD_LOCATION),
        ("s3://{closed}/models/x", Code.STORAGE_UNREACHABLE),
        ("ftp://host/x", Code.BAD_LOCATION),
        ("s3://models/a/../b", Code.BAD_LOCATION),
        ("oci://registry/Upper", Code.BAD_LOCATION),
    ],
)
def test_failures_of_a_push_each_have_a_code(
    tmp_path: Path, address: str, repository: Path, where: str, code: Code
) -> None:
    shown = where.format(address=address, closed=f"127.0.0.1:{made.free_port()}")
    failed = made.trb(tmp_path, "push", shown, str(repository))
    assert (failed.returncode, f"[{code.kind}]" in failed.stderr) == (code.exit, True), failed.stderr
    assert f"error: {shown}: " in failed.stderr
    assert "fix: " in failed.stderr
    assert "Traceback" not in failed.stderr


def test_no_credentials_and_denied(
    tmp_path: Path, address: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    failed = made.trb(tmp_path, "push", f"s3://{address}/models/x", str(repository))
    assert (failed.returncode, "Unable to locate credentials" in failed.stderr) == (10, True), failed.stderr
    with Answering(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>") as at:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        denied = made.trb(tmp_path, "push", f"s3://{at}/models/x", str(repository))
    assert (denied.returncode, "access denied" in denied.stderr) == (10, True), denied.stderr


@pytest.mark.parametrize(
    ("status", "times"), [(503, 2), (0, 2), pytest.param(503, 99, marks=pytest.mark.slow), (403, 99)]
)
def test_a_read_is_tried_again_after_a_5xx_and_a_dropped_connection(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest, status: int, times: int
) -> None:
    where = f"s3://{address}/{s3_server.BUCKET}/retried"
    push(tmp_path, where, str(repository))
    with Refusing(address, status=status, times=times) as proxy:
        pulled = made.trb(tmp_path, "pull", where.replace(address, proxy.address), str(tmp_path / "pulled"))
    assert (pulled.returncode == 0) is (times == 2), pulled.stderr
    assert ("tried 5 times" in pulled.stderr) is (status == 503 and times > 2), pulled.stderr
    assert (tmp_path / "pulled").exists() is (times == 2)
    if status == 403:
        assert proxy.refused == 1
    if times == 2:
        assert proxy.refused == 2


class Server(ThreadingHTTPServer):
    """Silent about clients that hang up: they would write into what trb prints in the same process."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Refusing:
    """A proxy of HTTP requests that answers the first ones itself: with a status, or (0) not at all."""

    def __init__(self, target: str, *, status: int, times: int, path: str = "") -> None:
        outer = self
        self.refused = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if outer.refused < times and path in self.path:
                    outer.refused += 1
                    self.refuse()
                    return
                far = http.client.HTTPConnection(target)
                far.request(self.command, self.path, body, dict(self.headers))
                answer = far.getresponse()
                data = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                length = answer.headers.get("Content-Length") if self.command == "HEAD" else len(data)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(data)
                far.close()

            def refuse(self) -> None:
                self.close_connection = True
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    self.connection.shutdown(socket.SHUT_RDWR)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Refusing:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Answering:
    """A server that says the same to everybody."""

    def __init__(self, status: int, body: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{self._server.server_port}"

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_nothing_pushed(tmp_path: Path, address: str) -> None:
    for what, code in (("models/empty", 10), (f"models/empty@sha256:{'0' * 64}", 10), ("nobucket/x", 10)):
        failed = made.trb(tmp_path, "pull", f"s3://{address}/{what}", str(tmp_path / "pulled"))
        assert failed.returncode == code, failed.stderr
        assert not (tmp_path / "pulled").exists()


def listed(tmp: Path, where: str) -> list[dict[str, Any]]:
    done = made.trb(tmp, "push", where, "--list", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["revisions"]
    return found


def test_revisions_are_listed_and_old_ones_removed(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    assert made.trb(tmp_path, "push", where, "--list").returncode == Code.NOT_PUSHED.exit
    pushed = []
    for number in range(4):
        (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + f"# {number}\n")
        pushed.append(push(tmp_path, where, str(repository))["revision"])
    found = listed(tmp_path, where)
    assert [stored["revision"] for stored in found] == pushed[::-1]
    assert [stored["holds"] for stored in found] == [["current"], ["previous"], [], []]
    table = made.trb(tmp_path, "push", where, "--list").stdout
    assert all(revision in table for revision in pushed)
    before = s3_server.keys(address, f"{request.node.name}/")
    told = made.trb(tmp_path, "push", where, "--prune", "--keep", "3", "--dry-run", "--json")
    assert s3_server.keys(address, f"{request.node.name}/") == before
    done = made.trb(tmp_path, "push", where, "--prune", "--keep", "3", "--json")
    for report in (told, done):
        assert [stored["revision"] for stored in json.loads(report.stdout)["removed"]] == pushed[:1]
    assert made.trb(tmp_path, "push", where, "--prune", "--keep", "1").returncode == 0
    assert [stored["revision"] for stored in listed(tmp_path, where)] == pushed[:1:-1]
    left = s3_server.keys(address, f"{request.node.name}/revisions/")
    assert not any(revision.removeprefix("sha256:") in key for revision in pushed[:2] for key in left)
    gone = made.trb(tmp_path, "pull", f"{where}@{pushed[0]}", str(tmp_path / "gone"))
    assert kind(gone.stderr) == Code.NOT_PUSHED
    for number, address_of in enumerate((where, f"{where}@{pushed[2]}")):
        assert made.trb(tmp_path, "pull", address_of, str(tmp_path / f"left{number}")).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--list", "--prune", "--keep", "2"),
        ("--prune",),
        ("--keep", "2"),
        ("--prune", "--keep", "0"),
        ("--list", "--dry-run"),
        ("--list", "--force"),
        ("--list", "--sign", "key"),
        ("--list", "repository"),
        ("--prune", "--keep", "2", "--sign", "key"),
        ("--prune", "--keep", "2", "repository"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert made.trb(tmp_path, "push", "s3://models/x", *arguments).returncode == 2


# --- the real server


@pytest.mark.server
def test_the_server_reads_the_bucket_and_the_current_revision(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    old = push(tmp_path, where, str(repository))["revision"]
    code = (repository / "step" / "1" / "model.py").read_text()
    (repository / "step" / "1" / "model.py").write_text(code.replace("x * 2", "x * 3"))
    push(tmp_path, where, str(repository))
    with serve(tmp_path, f"{where}@{old}") as running:
        about = running.ready()
        assert about["repository"].endswith(old)
        argument = f"--model-repository={where.replace('s3://', 's3://http://')}/revisions/"
        assert argument in made.command(running.server)
        assert running.infer("whole") == 200
        assert running.end(signal.SIGTERM) == 0
    with serve(tmp_path, where) as running:
        running.ready()
        client = HttpClient(running.http)
        body = encode_json({"X": np.array([[1, 2]], np.float32)})
        assert client.infer("whole", body)["Y"].tolist() == [[3.0, 6.0]]
        assert running.end(signal.SIGTERM) == 0


def serve(tmp: Path, where: str, *arguments: str) -> Any:
    return made.serve(tmp, where, "--engine=embedded", "--json", *arguments)


@pytest.mark.server
@pytest.mark.slow
def test_a_dead_model_is_fetched_and_loaded_again(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    push(tmp_path, where, str(repository))
    with serve(tmp_path, where) as running:
        running.ready()
        stub = next(pid for pid in made.children(running.server) if "/1/model.py" in made.command(pid))
        os.kill(stub, signal.SIGKILL)
        made.until(lambda: "is ready again" in running.err.read_text() or running.process.poll() is not None)
        assert running.infer("whole") == 200
        running.note()
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.server
def test_in_the_background_models_come_and_go(
    tmp_path: Path, address: str, repository: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    push(tmp_path, where, str(repository))
    arguments = (where, "--engine=embedded", *made.FREE, "--load=step", "--detach", "--json")
    started = made.trb(tmp_path, "serve", *arguments)
    assert started.returncode == 0, started.stderr
    try:
        server = json.loads(started.stdout)["urls"]["http"]
        (status,) = json.loads(made.trb(tmp_path, "status", "--json").stdout)
        assert (status["repository"], status["loaded"]) == (where, ["step"])
        loaded = made.trb(tmp_path, "load", "whole", "--url", server)
        assert loaded.returncode == 0, loaded.stderr
        (status,) = json.loads(made.trb(tmp_path, "status", "--json").stdout)
        assert status["loaded"] == ["step", "whole"]
    finally:
        stopped = made.trb(tmp_path, "stop", where)
    assert stopped.returncode == 0, stopped.stderr
    made.until(lambda: not list((tmp_path / "tmp").glob("trb-*/")))


@pytest.mark.slow
@pytest.mark.server
def test_smoke_proves_what_lies_in_the_bucket(
    tmp_path: Path, address: str, minilm_int8: Path, request: pytest.FixtureRequest
) -> None:
    where = url(address, request)
    local = tmp_path / "minilm"
    argv = ["build", "--model", str(minilm_int8), "--name", "minilm", "--output", str(local)]
    trb(*argv)
    pushed = push(tmp_path, where, str(local))
    assert any(key.startswith("trb.minilm.source.") for key in pushed["labels"])
    smoke = made.trb(tmp_path, "smoke", where, "--engine=embedded", "--json")
    assert smoke.returncode == 0, smoke.stderr
    report = json.loads(smoke.stdout)
    assert any(check["group"] == "golden cases" for check in report["checks"])
    assert made.trb(tmp_path, "pull", where, str(tmp_path / "pulled")).returncode == 0
    assert made.trb(tmp_path, "check", str(tmp_path / "pulled"), "--strict").returncode == 0
