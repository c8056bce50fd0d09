"""``trb verify`` and ``trb provenance --url`` on real servers: what is the same, and what is not."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny
import two_versions

from tests.support import s3_server
from tests.support import serve_repository as made
from tests.support.cli import call, kind, trb
from tests.support.servers import free
from tests.support.zoo import Zoo
from triton_repo_builder.base import files, process
from triton_repo_builder.base.errors import Code
from triton_repo_builder.produce.write import publish, versions
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.serve.embedded import engine, install
from triton_repo_builder.run.serve.processes import proc
from triton_repo_builder.run.serve.processes.ports import Ports
from triton_repo_builder.ship.deploy import promote

WEIGHTS = "sentiment_model/1/weights.onnx"


def put(model: Path, output: Path, version: int = 1, **options: Any) -> None:
    built = tiny.make(model, output, version=version, **options)
    publish.publish(publish.prepare(versions.place(built, output, serve=False), output))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_versions.make(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def built(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "model_repository"
    put(models[0], folder)
    return folder


@pytest.fixture
def repo(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may alter."""
    return Path(shutil.copytree(built, tmp_path / "model_repository"))


def verify(revision: Path | str, url: str, *arguments: str, cwd: Path | None = None) -> tuple[str, str]:
    """The result and the reasons for the only endpoint; exit code 0 only if it is the same."""
    done = call("verify", str(revision), "--url", url, "--json", *arguments, cwd=cwd)
    document = json.loads(done.stdout)
    (verdict,) = document["endpoints"]
    assert (done.returncode == 0) is document["same"] is (verdict["result"] == "same"), done.stderr
    assert verdict["result"] in call("verify", str(revision), "--url", url, *arguments, cwd=cwd).stdout
    return verdict["result"], "\n".join(verdict["reasons"])


def provenance(repo: Path, url: str) -> tuple[bool | None, str]:
    done = call("provenance", str(repo), "--url", url, "--json")
    (link,) = json.loads(done.stdout)
    assert done.returncode == int(link["server_agrees"] is False)
    text = call("provenance", str(repo), "--url", url).stdout
    assert ("serves the same" in text) is (link["server_agrees"] is True)
    return link["server_agrees"], "\n".join(link["server_reasons"])


def alter(file: Path) -> None:
    """Flip a byte, in a file of its own."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.unlink()
    file.write_bytes(content)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.unlink()
    file.write_text(text.replace(old, new))


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of another machine: no process of this one listens on its port."""
    monkeypatch.setattr(proc, "listener", lambda port: 0)


@pytest.mark.slow
def test_the_same_by_folder_commit_and_push(
    zoo: Zoo, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A User")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "user@example.org")
    trb("commit", repo, "-m", "Deploy", "--weights", "git")
    s3_server.use(monkeypatch)
    with s3_server.running(tmp_path) as address, zoo.serving(repo) as server:
        url = f"s3://{address}/{s3_server.BUCKET}/sentiment"
        trb("push", url, repo)
        for revision in (repo, "HEAD", "HEAD:model_repository", url):
            result, reasons = verify(revision, server.urls.http, "--strict", cwd=tmp_path)
            assert (result, "files that the server reads" in reasons) == ("same", True), reasons
        document = json.loads(
            trb(
                "verify", "HEAD", "--url", server.urls.http, "--json", "--endpoint", "sentiment", cwd=tmp_path
            )
        )
        assert document["commit"] == process.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"]).strip()
        verdict = document["endpoints"][0]
        assert verdict["content"] == verdict["served_content"] and len(verdict["content"]) == 64
        assert provenance(repo, server.urls.http)[0] is True
        unknown = call("verify", repo, "--url", server.urls.http, "--endpoint", "other")
        assert kind(unknown.stderr) is Code.NOT_FOUND
        unknown = call("verify", "HEAD~9", "--url", server.urls.http, cwd=tmp_path)
        assert kind(unknown.stderr) is Code.NOT_FOUND


def test_other_options(zoo: Zoo, built: Path, models: tuple[Path, Path], tmp_path: Path) -> None:
    put(models[0], tmp_path / "other", instances=1, max_queue_delay=300)
    with zoo.serving(tmp_path / "other") as server:
        result, reasons = verify(built, server.urls.http)
        assert result == "differs"
        for field in ("sentiment_model: instance_group is", "dynamic_batching", "parameter trb.content"):
            assert field in reasons
        assert provenance(built, server.urls.http)[0] is False


def test_another_model_under_the_same_name(
    zoo: Zoo, built: Path, models: tuple[Path, Path], tmp_path: Path, unreadable: None
) -> None:
    put(models[1], tmp_path / "other")
    with zoo.serving(tmp_path / "other") as server:
        result, reasons = verify(built, server.urls.http)
        assert (result, "parameter trb.model_sha256" in reasons) == ("differs", True)


def test_altered_weights_that_a_server_started_from(zoo: Zoo, built: Path, repo: Path) -> None:
    alter(repo / WEIGHTS)
    with zoo.serving(repo) as server:
        # The processes of the test before may still be ending.
        made.until(lambda: verify(built, server.urls.http)[0] == "differs")
        for revision in (built, repo):
            result, reasons = verify(revision, server.urls.http)
            assert (result, WEIGHTS in reasons) == ("differs", True), reasons
            agrees, reasons = provenance(revision, server.urls.http)
            assert (agrees, WEIGHTS in reasons) == (False, True)


def test_weights_altered_after_loading_leave_open_what_is_served(zoo: Zoo, built: Path, repo: Path) -> None:
    whole = (repo / WEIGHTS).read_bytes()
    with zoo.serving(repo) as server:
        assert verify(built, server.urls.http)[0] == "same"
        alter(zoo.root / WEIGHTS)
        result, reasons = verify(built, server.urls.http)
        assert (result, WEIGHTS in reasons) == ("cannot be known", True), reasons
        assert provenance(built, server.urls.http)[0] is None
        (zoo.root / WEIGHTS).write_bytes(whole)  # perhaps it was loaded in between
        result, reasons = verify(built, server.urls.http)
        assert (result, "written after" in reasons) == ("cannot be known", True), reasons
        assert HttpClient(server.urls.http, 60).load("sentiment_model") == ""
        made.until(lambda: verify(built, server.urls.http)[0] == "same")


def load_with_files(url: str, model: str, folder: Path, version: str) -> None:
    """Load a model with the version's files in the request, under the number 1, as Triton's API allows."""
    kept = [path for path in (folder / version).iterdir() if path.is_file()]
    files_of_1 = {f"file:1/{path.name}": path for path in kept}
    beside = {
        f"file:{path.relative_to(folder)}": path
        for path in folder.rglob("*")
        if path.is_file() and not path.relative_to(folder).parts[0].isdigit() and path.name != "config.pbtxt"
    }
    brought = {
        name: base64.b64encode(path.read_bytes()).decode() for name, path in {**files_of_1, **beside}.items()
    }
    config = json.dumps(dict(HttpClient(url).config(model).raw))
    body = json.dumps({"parameters": {"config": config, **brought}}).encode()
    with urllib.request.urlopen(f"{url}/v2/repository/models/{model}/load", body) as answer:
        assert answer.status == 200


@pytest.mark.slow
def test_files_that_came_with_the_request_to_load(models: tuple[Path, Path], tmp_path: Path) -> None:
    """The folder and the configuration as loaded are the revision's; what runs is another model."""
    root = tmp_path / "served"
    put(models[0], root, golden=True)
    put(models[1], root, 2, golden=True)
    built = Path(shutil.copytree(root, tmp_path / "revision"))
    with serve.start(root, free(), engine="embedded") as server:
        url = server.urls.http
        load_with_files(url, "sentiment_model", root / "sentiment_model", "2")
        result, reasons = verify(built, url)
        assert (result, "came with a request to load it" in reasons) == ("differs", True)
        again = ("apply", built, "--url", url, "--grpc-url", server.urls.grpc, "--no-preflight", "--json")
        (endpoint,) = json.loads(call(*again).stdout)["endpoints"]
        assert (endpoint["action"], endpoint["failed"]) == ("load", None)
        assert verify(built, url)[0] == "same"


@pytest.mark.parametrize(
    "name", ["triton_python_backend_utils.py", "vendor/tokenizers/tokenizers.cpython-0.so"]
)
def test_a_module_that_python_may_import_instead(zoo: Zoo, built: Path, repo: Path, name: str) -> None:
    with zoo.serving(repo) as server:
        folder = zoo.root / "sentiment_tokenizer" / "1"
        (folder / "notes.txt").write_text("nothing that Python reads")
        assert verify(built, server.urls.http)[0] == "same"
        (folder / name).write_text("")
        result, reasons = verify(built, server.urls.http)
        assert (result, f"{name} is beside" in reasons) == ("differs", True)


def test_bytecode_is_no_proof_of_its_source(zoo: Zoo, built: Path, repo: Path) -> None:
    cache = repo / "sentiment_tokenizer" / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-310.pyc").write_bytes(b"anything")
    with zoo.serving(repo) as server:
        assert verify(built, server.urls.http)[0] == "same"
        result, reasons = verify(built, server.urls.http, "--strict")
        assert (result, "bytecode" in reasons) == ("cannot be known", True)


def test_a_folder_that_lost_its_manifest_is_altered(zoo: Zoo, repo: Path) -> None:
    (repo / "manifest.json").unlink()
    with zoo.serving(repo) as server:
        result, reasons = verify(repo, server.urls.http)
        assert (result, "manifest.json is missing" in reasons) == ("differs", True)
    done = call("provenance", repo)
    assert (done.returncode, "manifest.json is missing" in done.stdout) == (1, True)


def test_provenance_names_altered_files_of_a_version_that_waits(
    repo: Path, models: tuple[Path, Path]
) -> None:
    put(models[1], repo, 2)
    assert call("provenance", repo).returncode == 0
    alter(repo / "sentiment_model" / "2" / "weights.onnx")
    done = call("provenance", repo)
    assert (done.returncode, "sentiment_model/2/weights.onnx was changed" in done.stdout) == (1, True)


def test_an_altered_configuration(zoo: Zoo, built: Path, repo: Path, unreadable: None) -> None:
    edit(repo / "sentiment_tokenizer" / "config.pbtxt", "count: ", "count: 1")
    edit(repo / "sentiment_model" / "config.pbtxt", "dynamic_batching { }", "")
    with zoo.serving(repo) as server:
        result, reasons = verify(built, server.urls.http)
        assert result == "differs"
        assert "sentiment_tokenizer: instance_group" in reasons
        assert "sentiment_model: dynamic_batching is unset" in reasons
        # What stands on the disk is what is loaded, and still not what was built.
        assert verify(repo, server.urls.http)[0] == "differs"


def test_a_server_whose_files_cannot_be_read(zoo: Zoo, built: Path, repo: Path, unreadable: None) -> None:
    with zoo.serving(repo) as server:
        result, reasons = verify(built, server.urls.http)
        assert (result, "cannot be read from here" in reasons) == ("same", True)
        assert verify(built, server.urls.http, "--strict")[0] == "cannot be known"


def test_a_repository_without_digest(zoo: Zoo, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an older trb: equal only if the files were compared."""
    file = repo / "manifest.json"
    document = json.loads(file.read_text())
    del document["endpoints"]["sentiment"]["content"]
    config = repo / "sentiment" / "config.pbtxt"
    config.write_text("".join(line for line in config.open() if "trb.content" not in line))
    entry = {"sha256": files.hash_file(config), "bytes": config.stat().st_size}
    document["files"]["sentiment/config.pbtxt"] = entry
    file.write_text(json.dumps(document))
    with zoo.serving(repo) as server:
        assert verify(repo, server.urls.http)[0] == "same"
        monkeypatch.setattr(proc, "listener", lambda port: 0)
        result, reasons = verify(repo, server.urls.http)
        assert (result, "no content digest" in reasons) == ("cannot be known", True)
        assert provenance(repo, server.urls.http)[0] is None


@pytest.mark.slow
def test_another_version_and_none(
    zoo: Zoo, built: Path, repo: Path, models: tuple[Path, Path], tmp_path: Path
) -> None:
    first = Path(shutil.copytree(built, tmp_path / "first"))
    put(models[1], repo, 2)
    with zoo.serving(repo) as server:  # version 1 beside another one, pinned: still the same
        assert verify(first, server.urls.http)[0] == "same"
        assert verify(repo, server.urls.http)[0] == "same"
    move = promote.plan(repo, "sentiment", 2)
    assert move is not None
    promote.in_repository(move)
    with zoo.serving(repo) as server:
        assert verify(repo, server.urls.http)[0] == "same"
        result, reasons = verify(first, server.urls.http)
        assert (result, "version 2 is loaded, the revision serves 1" in reasons) == ("differs", True)
        assert provenance(first, server.urls.http)[0] is False
        url = server.urls.http
    assert verify(first, url)[0] == "not served"
    assert provenance(first, url)[0] is False
    gone = call("verify", first, "--url", "http://127.0.0.1:9")
    assert kind(gone.stderr) is Code.UNREACHABLE


def test_a_repository_made_by_hand(zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "by_hand"
    made.python(root, "verified_step")
    made.ensemble(root, "verified", "verified_step")
    with zoo.serving(root) as server:
        result, reasons = verify(root, server.urls.http)
        assert result == "same", reasons
        other = Path(shutil.copytree(root, tmp_path / "other"))
        edit(other / "verified_step" / "1" / "model.py", "x * 2", "x * 3")
        assert verify(other, server.urls.http)[0] == "differs"
        monkeypatch.setattr(proc, "listener", lambda port: 0)
        assert verify(root, server.urls.http)[0] == "cannot be known"


@contextmanager
def by_hand(root: Path, folder: Path) -> Iterator[str]:
    """The url of a tritonserver that its user started, in the repository's parent with a relative path."""
    installation = install.find()
    folder.mkdir()
    install.assemble(installation, folder)
    http, grpc, metrics = (made.free_port() for _ in range(3))
    ports = Ports(http=http, grpc=grpc, metrics=metrics)
    argv = engine.arguments(installation.binary, root.name, folder / "backends", free(), ports)
    argv = [argument for argument in argv if not argument.startswith("--model-control")]
    environment = install.environment(installation, folder)
    log = (folder / "log").open("wb")
    with log, subprocess.Popen(argv, cwd=root.parent, env=environment, stdout=log, stderr=log) as server:
        try:
            client = HttpClient(f"http://127.0.0.1:{http}")
            deadline = time.monotonic() + 120
            while not client.answers_ready():
                assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
            yield client.url
        finally:
            server.terminate()


def test_a_server_that_trb_did_not_start(
    built: Path, repo: Path, models: tuple[Path, Path], tmp_path: Path
) -> None:
    with by_hand(repo, tmp_path / "server") as url:
        result, reasons = verify(built, url, "--strict")
        assert (result, "files that the server reads" in reasons) == ("same", True), reasons
        # The folder goes on to another version, the server does not.
        put(models[1], repo, 2)
        move = promote.plan(repo, "sentiment", 2)
        assert move is not None
        promote.in_repository(move)
        assert verify(built, url)[0] == "same"
        assert verify(repo, url)[0] == "differs"
        alter(repo / WEIGHTS)
        result, reasons = verify(built, url)
        assert (result, WEIGHTS in reasons) == ("cannot be known", True)
