"""Promote and roll back on a real tritonserver under load: no request is lost, none gets a mixed answer."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny
import two_versions

from tests.integration.test_main_job import infer
from tests.support import altered
from tests.support.cli import trb_apart as trb
from tests.support.serve_repository import python
from tests.support.servers import free
from triton_repo_builder import repository
from triton_repo_builder.base import process
from triton_repo_builder.base.errors import Code
from triton_repo_builder.run import serve as serve_module
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.serve.processes import stubs, watchdog

pytestmark = pytest.mark.server

CLIENTS = 2
PAUSE = 0.02
"""Seconds between the requests of a client: some are always in flight, and the change has the cores."""
MANY, HURRIED = 6, 0.0
"""The same on an overloaded machine."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 served, version 2 beside it."""
    folder = tmp_path_factory.mktemp("versions")
    one, two = two_versions.make(folder)
    output = folder / "model_repository"
    trb("build", "--model", str(one), "--output", str(output), "--source-run", "run-1")
    trb("build", "--model", str(two), "--output", str(output), "--version", "next", "--source-run", "run-2")
    return output


@pytest.fixture
def repo(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model_repository"))


@contextmanager
def serve(repo: Path) -> Iterator[serve_module.RunningServer]:
    options = free()
    with serve_module.start(repo, options, engine="embedded") as server:
        yield server


def golden(repo: Path, version: int) -> dict[str, Any]:
    """text → what the original model of that version answered at build time."""
    path = repo / "sentiment" / str(version) / "shared" / "smoke.json"
    cases = json.loads(path.read_text())["cases"]
    found = {}
    for case in cases:
        if [item["name"] for item in case["inputs"]] != ["TEXT"]:
            continue  # a text with a second one has another answer
        (texts,) = case["inputs"]
        scores = next(item for item in case["outputs"] if item["name"] == "scores")
        found[texts["data"][0]] = np.array(scores["data"]).ravel()
    return found


def change(repo: Path, path: str, content: bytes) -> None:
    """Version 2 with another file, as if it had been built so."""
    altered.record(repo, path, content)
    altered.seal(repo, "sentiment", 2)


class Load:
    """Clients that ask all the time and sort every answer by the version that gave it."""

    def __init__(
        self,
        url: str,
        one: dict[str, Any],
        two: dict[str, Any],
        *,
        clients: int = CLIENTS,
        pause: float = PAUSE,
    ) -> None:
        self.seen: Counter[str] = Counter()
        self.failures: list[str] = []
        self._url, self._one, self._two = url.removeprefix("http://"), one, two
        self._pause = pause
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)

    def _ask(self, number: int) -> None:
        texts = [text for text in self._one if text]
        connection = http.client.HTTPConnection(self._url, timeout=60)
        while not self._end.wait(self._pause):
            text = texts[number % len(texts)]
            number += 1
            tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]}
            try:
                body = json.dumps({"inputs": [tensor]})
                connection.request(
                    "POST", "/v2/models/sentiment/infer", body, {"Content-Type": "application/json"}
                )
                answer = connection.getresponse()
                said = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
                continue
            if answer.status != 200:
                self.failures.append(f"{answer.status} {said[:200]!r}")
                continue
            outputs = {item["name"]: item["data"] for item in json.loads(said)["outputs"]}
            self.seen[self._version(text, np.array(outputs["scores"]))] += 1

    def _version(self, text: str, scores: Any) -> str:
        for name, expected in (("1", self._one), ("2", self._two)):
            if np.allclose(scores, expected[text], atol=1e-5):
                return name
        return "neither"


def served(server: serve_module.RunningServer) -> dict[str, list[str]]:
    ready: dict[str, list[str]] = {}
    for entry in HttpClient(server.urls.http).index():
        if entry.ready:
            ready.setdefault(entry.name, []).append(entry.version)
    return ready


def only(version: str) -> dict[str, list[str]]:
    return {name: [version] for name in ("sentiment", "sentiment_model", "sentiment_tokenizer")}


def test_the_two_versions_differ_on_every_text(made: Path) -> None:
    one, two = golden(made, 1), golden(made, 2)
    assert one.keys() == two.keys()
    assert all(not np.allclose(one[text], two[text], atol=1e-3) for text in one if text)


@pytest.mark.slow
@pytest.mark.timeout(900)  # seven smokes beside six clients that never pause
def test_no_request_is_lost_while_versions_change(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on an overloaded machine: an unloaded version's process is seen dead before the server buries it.
    monkeypatch.setattr(watchdog, "SETTLE", 0.0)
    monkeypatch.setattr(stubs.StubProcesses, "tick", 0.01)
    one, two = golden(repo, 1), golden(repo, 2)
    with serve(repo) as server:
        assert served(server) == only("1")
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        with Load(server.urls.http, one, two, clients=MANY, pause=HURRIED) as load:
            said = trb("promote", "sentiment", str(repo), "--version", "2", *url)
            assert served(server) == only("2")
            trb("rollback", "sentiment", str(repo), *url)
            trb("promote", "sentiment", str(repo), "--version", "2", *url)
        assert load.failures == []
        assert load.seen["neither"] == 0
        assert min(load.seen["1"], load.seen["2"]) > 20, load.seen
        assert served(server) == only("2")
        assert "serve version 2 of sentiment" in said
        chain = json.loads(trb("provenance", str(repo), "--url", server.urls.http, "--json"))
        assert [(link["source_run"], link["server_agrees"]) for link in chain] == [("run-2", True)]
        report = json.loads(trb("smoke", str(repo), "--json", *url))
        assert report["ok"] and report["parity_proven"]


def test_a_version_with_wrong_answers_is_taken_back(repo: Path) -> None:
    # The answers recorded for version 2 are those of another model: smoke must find that out.
    other = (repo / "sentiment" / "1" / "shared" / "smoke.json").read_bytes()
    change(repo, "sentiment/2/shared/smoke.json", other)
    one = golden(repo, 1)
    before = {
        p: p.read_bytes() for p in sorted(repo.rglob("*")) if p.is_file() and "__pycache__" not in p.parts
    }
    with serve(repo) as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        nothing = {text: -scores for text, scores in one.items()}
        with (
            Load(server.urls.http, one, nothing) as load,
            pytest.raises(process.ProcessFailed) as caught,
        ):
            trb("promote", "sentiment", str(repo), "--version", "2", "--no-preflight", *url)
        assert caught.value.code == Code.PROMOTE_FAILED.exit
        assert "version 1 serves again" in caught.value.stderr
        assert load.failures == []
        assert served(server) == only("1")
        assert json.loads(trb("smoke", str(repo), "--clients", "2", "--json", *url))["ok"]
    after = {
        p: p.read_bytes() for p in sorted(repo.rglob("*")) if p.is_file() and "__pycache__" not in p.parts
    }
    assert after == before


@pytest.mark.slow
def test_a_version_that_does_not_load_changes_nothing(repo: Path) -> None:
    # Recorded as it is, so that only the server can find out.
    change(repo, "sentiment_model/2/model.onnx", b"no model")
    with serve(repo) as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        with (
            Load(server.urls.http, golden(repo, 1), golden(repo, 2)) as load,
            pytest.raises(process.ProcessFailed) as caught,
        ):
            trb("promote", "sentiment", str(repo), "--version", "2", "--no-preflight", *url)
        assert caught.value.code == Code.PROMOTE_FAILED.exit
        assert "sentiment_model could not be loaded" in caught.value.stderr
        assert load.failures == []
        assert set(load.seen) == {"1"}
        assert served(server) == only("1")
        assert HttpClient(server.urls.http).ready()  # a balancer that asks goes on sending requests
        report = json.loads(trb("smoke", str(repo), "--clients", "2", "--json", *url))
        assert report["ok"]
    assert repository.read(repo).manifest.endpoints["sentiment"].served.version == 1


DEADLY = b"import os\nos._exit(1)\n"
DIED = "sentiment_tokenizer: its Python process ended while loading (exit code 1)"
HUNG = "sentiment_tokenizer: its Python process ended while starting (exit code 1)"
"""On a server that completes configurations, the load never ends then."""


@pytest.mark.parametrize("what", ["process dies", "wrong answers"])
def test_a_preflight_keeps_a_bad_version_from_the_server(repo: Path, what: str) -> None:
    if what == "process dies":
        change(repo, "sentiment_tokenizer/2/model.py", DEADLY)
    else:
        other = (repo / "sentiment" / "1" / "shared" / "smoke.json").read_bytes()
        change(repo, "sentiment/2/shared/smoke.json", other)
    before = {path: path.read_bytes() for path in sorted(repo.rglob("*.*")) if path.is_file()}
    with serve(repo) as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        with (
            Load(server.urls.http, golden(repo, 1), {}) as load,
            pytest.raises(process.ProcessFailed) as caught,
        ):
            trb("promote", "sentiment", str(repo), "--version", "2", *url)
        assert caught.value.code == Code.PROMOTE_FAILED.exit
        assert "on a server of its own" in caught.value.stderr
        assert "nothing was changed" in caught.value.stderr
        if what == "process dies":
            assert DIED in caught.value.stderr
        assert load.failures == []
        assert set(load.seen) == {"1"}
        assert HttpClient(server.urls.http).ready()
    after = {path: path.read_bytes() for path in sorted(repo.rglob("*.*")) if path.is_file()}
    assert {p: c for p, c in after.items() if "__pycache__" not in p.parts} == {
        p: c for p, c in before.items() if "__pycache__" not in p.parts
    }


@pytest.mark.slow
@pytest.mark.parametrize("completing", [False, True])
def test_without_a_preflight_a_process_that_dies_is_noticed_at_once(repo: Path, completing: bool) -> None:
    change(repo, "sentiment_tokenizer/2/model.py", DEADLY)
    before = (repo / "sentiment_tokenizer" / "config.pbtxt").read_bytes()
    if completing:
        python(repo, "by_hand")
    with serve(repo) as server:
        url = ("--no-preflight", "--url", server.urls.http, "--grpc-url", server.urls.grpc)
        again = (HUNG, "the server still loads version 2 of sentiment_tokenizer")
        for message in again if completing else (DIED.replace(": ", " could not be loaded: "), DIED[-20:]):
            with pytest.raises(process.ProcessFailed) as caught:
                trb("promote", "sentiment", str(repo), "--version", "2", *url)
            assert caught.value.code == Code.PROMOTE_FAILED.exit
            assert message in caught.value.stderr
            assert ("start the server again" in caught.value.stderr) == completing
        assert infer(server, "sentiment", ["hello"], "scores").size == 3  # version 1 goes on answering
    assert (repo / "sentiment_tokenizer" / "config.pbtxt").read_bytes() == before
    assert repository.read(repo).manifest.endpoints["sentiment"].served.version == 1


def test_a_server_on_another_repository_is_noticed(repo: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(repo, tmp_path / "other"))
    with serve(other) as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        with pytest.raises(process.ProcessFailed) as caught:
            trb("promote", "sentiment", str(repo), "--version", "2", *url)
        assert caught.value.code == Code.PROMOTE_FAILED.exit
        assert "start it from this repository" in caught.value.stderr
        assert served(server) == only("1")
    assert repository.read(repo).manifest.endpoints["sentiment"].served.version == 1


def test_promoted_in_the_repository_it_serves_what_it_says(repo: Path) -> None:
    trb("promote", "sentiment", str(repo), "--version", "2")
    with serve(repo) as server:
        assert served(server) == only("2")
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        assert json.loads(trb("smoke", str(repo), "--clients", "2", "--json", *url))["parity_proven"]
    assert [f for f in json.loads(trb("check", str(repo), "--json")) if "sentiment" in f["where"]] == []
    trb("rollback", "sentiment", str(repo))
    with serve(repo) as server:
        assert served(server) == only("1")


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An endpoint that is one model, at two versions with other weights."""
    folder = tmp_path_factory.mktemp("tensors")
    for number in ("one", "two"):
        tiny.tensor_model(folder / number / "net.onnx")
    two_versions.change_weights(folder / "two" / "net.onnx", ("W",))
    for number, version in (("one", "1"), ("two", "next")):
        model = str(folder / number / "net.onnx")
        trb("build", "--model", model, "--output", str(folder / "repo"), "--version", version)
    return folder


@pytest.mark.slow
def test_a_model_without_steps_changes_without_a_lost_request(tensors: Path, tmp_path: Path) -> None:
    repo = Path(shutil.copytree(tensors / "repo", tmp_path / "repo"))
    row = np.random.default_rng(1).normal(size=(1, 32)).astype(np.float32)
    expected = {
        version: onnxruntime.InferenceSession(str(tensors / name / "net.onnx")).run(None, {"X": row})[0]
        for version, name in (("1", "one"), ("2", "two"))
    }
    body = json.dumps(
        {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 32], "data": row.ravel().tolist()}]}
    )
    seen: Counter[str] = Counter()
    end = threading.Event()

    def ask(url: str) -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        while not end.wait(PAUSE):
            connection.request("POST", "/v2/models/net/infer", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = json.loads(answer.read())
            if answer.status != 200:
                seen[f"{answer.status} {said}"] += 1
                continue
            values = np.array(said["outputs"][0]["data"])
            right = [v for v, rows in expected.items() if np.allclose(values, rows.ravel(), atol=1e-4)]
            seen[right[0] if right else "neither"] += 1

    with serve(repo) as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        threads = [threading.Thread(target=ask, args=(server.urls.http,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            trb("promote", "net", str(repo), "--version", "2", *url)
            trb("rollback", "net", str(repo), *url)
        finally:
            end.set()
            for thread in threads:
                thread.join(60)
        assert set(seen) == {"1", "2"}, seen
        assert served(server) == {"net": ["1"]}


@pytest.mark.slow
def test_what_is_promoted_answers_as_pytorch_does(exported: Path, tmp_path: Path) -> None:
    """Version 1 has other weights; version 2 is the model whose answers PyTorch gave at its export."""
    other = Path(shutil.copytree(exported / "classifier", tmp_path / "other" / "classifier"))
    two_versions.change_weights(other / "model.onnx", ("classifier.weight",))
    repo = tmp_path / "model_repository"
    for model, version in ((other, "1"), (exported / "classifier", "next")):
        trb("build", "--model", str(model), "--output", str(repo), "--instances", "1", "--version", version)
    reference = json.loads((exported / "classifier" / "reference.json").read_text())
    with serve(repo) as server:
        url = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)

        def scores() -> Any:
            return infer(server, "classifier", reference["texts"], "scores")

        assert not np.allclose(scores(), np.array(reference["answers"]), atol=1e-2)
        trb("promote", "classifier", str(repo), "--version", "2", *url)
        np.testing.assert_allclose(scores(), np.array(reference["answers"]), atol=1e-4)
