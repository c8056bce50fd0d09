"""Two hundred models in one repository, and a server that loads and unloads them while it runs."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny

from tests.support.raw_server import raw_server
from tests.support.serve_repository import FREE, RAISES, Serve, ensemble, python, serve, trb, until
from triton_repo_builder.base.errors import Code

pytestmark = pytest.mark.server
COUNT = 200


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 models: every fourth takes text, with one of two tokenizers; no two have the same weights."""
    root = tmp_path_factory.mktemp("many") / "models"
    for number in range(COUNT):
        folder = root / f"group{number % 10}" / f"m{number:03}"
        if number % 4:
            tiny.tensor_model(folder / "model.onnx", outputs=[f"Y{number}"])
            continue
        tiny.embedder(folder)
        if number % 8:
            tiny.tokenizer(folder / "tokenizer.json", extra=("one", "more"))
    return root


@pytest.fixture(scope="module")
def repository(models: Path) -> Path:
    """Built with golden cases, as users build."""
    output = models.parent / "model_repository"
    said = trb(models.parent, "build", "--all", str(models), "--output", str(output), "--instances", "1")
    assert said.returncode == 0, said.stderr
    assert "200 endpoints, 2 tokenizers" in said.stdout
    return output


def name(number: int) -> str:
    return f"group{number % 10}_m{number:03}"


def ask(http: str, model: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Outputs by name; the error where the server refuses."""
    request = urllib.request.Request(
        f"{http}/v2/models/{model}/infer",
        json.dumps({"inputs": inputs}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return {output["name"]: output["data"] for output in json.load(response)["outputs"]}
    except urllib.error.HTTPError as error:
        return {"error": json.load(error)["error"]}


def embed(http: str, model: str, text: str) -> list[float]:
    inputs = [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]}]
    answer = ask(http, model, inputs)
    assert "embedding" in answer, answer
    values: list[float] = answer["embedding"]
    return values


def loaded(server: Serve) -> set[str]:
    with urllib.request.urlopen(
        urllib.request.Request(
            f"{server.http}/v2/repository/index", b"{}", {"Content-Type": "application/json"}
        )
    ) as answer:
        return {entry["name"] for entry in json.load(answer) if entry.get("state") == "READY"}


@pytest.mark.slow
def test_two_hundred_models_loaded_on_demand(tmp_path: Path, models: Path, repository: Path) -> None:
    assert len([path for path in repository.iterdir() if path.is_dir()]) == 150 + 2 * 50 + 2
    with serve(tmp_path, repository, "--load", name(0), "--load", name(1), "--json") as running:
        about = running.ready()
        assert [endpoint["name"] for endpoint in about["endpoints"]] == [name(0), name(1)]
        url = ("--url", running.http)
        tokenizer = next(one for one in loaded(running) if one.startswith("tokenizer_"))
        assert loaded(running) == {name(0), name(0) + "_model", name(1), tokenizer}
        assert "unknown model" in ask(running.http, name(5), [])["error"]

        said = trb(tmp_path, "load", name(5), name(8), *url)
        assert said.returncode == 0, said.stderr
        assert f"loaded: {name(5)}, {name(8)}" in said.stdout
        rows = np.arange(32, dtype=np.float32).reshape(1, 32)
        data = [{"name": "X", "datatype": "FP32", "shape": [1, 32], "data": rows.reshape(-1).tolist()}]
        file = models / "group5" / "m005" / "model.onnx"
        expected = onnxruntime.InferenceSession(str(file)).run(None, {"X": rows})[0]
        np.testing.assert_allclose(ask(running.http, name(5), data)["Y5"], expected[0], rtol=1e-4, atol=1e-4)
        # The same model and tokenizer twice: one tokenizer model serves both.
        assert embed(running.http, name(0), "hello fox") == embed(running.http, name(8), "hello fox")
        assert loaded(running) >= {name(8), name(8) + "_model", tokenizer}

        # The tokenizer stays for the other endpoint, and goes with the last.
        assert trb(tmp_path, "unload", name(0), *url).stdout == f"unloaded: {name(0)}\n"
        assert name(0) not in loaded(running)
        assert name(0) + "_model" not in loaded(running)
        assert tokenizer in loaded(running)
        assert len(embed(running.http, name(8), "hello")) == tiny.WIDTH
        assert trb(tmp_path, "unload", name(8), *url).returncode == 0
        assert tokenizer not in loaded(running)
        assert trb(tmp_path, "unload", name(8), *url).stdout == f"{name(8)} was not loaded\n"
        assert loaded(running) == {name(1), name(5)}
        running.note()
        assert running.end(signal.SIGTERM) == 0
        assert running.err.read_text().count("lost its Python process") == 0


@pytest.mark.slow
def test_golden_cases_of_endpoints_that_share_a_tokenizer(tmp_path: Path, repository: Path) -> None:
    with serve(tmp_path, repository, "--load", name(0), "--load", name(4), "--json") as running:
        about = running.ready()
        addresses = ("--url", running.http, "--grpc-url", about["urls"]["grpc"])
        said = trb(
            tmp_path,
            "smoke",
            str(repository),
            *addresses,
            "--endpoint",
            name(0),
            "--endpoint",
            name(4),
            "--json",
        )
        report = json.loads(said.stdout)
        assert report["ok"] is True, said.stdout[-3000:]
        assert report["parity_proven"] is True
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_nothing_loaded_at_start(tmp_path: Path, repository: Path) -> None:
    said = trb(tmp_path, "serve", str(repository), *FREE, "--load", "none", "--detach", "--json")
    assert said.returncode == 0, said.stderr
    try:
        assert json.loads(said.stdout)["endpoints"] == []
        (listed,) = json.loads(trb(tmp_path, "status", "--json").stdout)
        assert (listed["ready"], listed["loaded"]) == (True, [])
        assert f"none of {COUNT}" in trb(tmp_path, "status").stdout
        # Without --url: the only server in the background.
        said = trb(tmp_path, "load", name(1), "--json")
        assert [endpoint["name"] for endpoint in json.loads(said.stdout)] == [name(1)], said.stderr
        (listed,) = json.loads(trb(tmp_path, "status", "--json").stdout)
        assert listed["loaded"] == [name(1)]
        assert f"1 of {COUNT}: {name(1)}" in trb(tmp_path, "status").stdout
        # A model that is built after the start.
        tiny.put(tiny.tensor_model(tmp_path / "newcomer.onnx"), repository)
        assert trb(tmp_path, "load", "newcomer").returncode == 0
        said = trb(tmp_path, "load", "newcome")
        assert said.returncode == Code.NOT_FOUND.exit
        assert "did you mean 'newcomer'?" in said.stderr
    finally:
        assert trb(tmp_path, "stop", "--all").returncode == 0


@pytest.mark.slow
def test_failures_are_named_with_their_cause_and_cost_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "user's repo"
    python(root, "step")
    ensemble(root, "whole", "step")
    python(root, "raises", RAISES)
    ensemble(root, "above", "raises")
    python(root, "dies", "import os\nos.write(2, b'last words\\n')\nos._exit(3)\n")
    python(root, "newer")
    config = root / "newer" / "config.pbtxt"
    config.write_text(config.read_text() + "model_metrics { }\n")
    with serve(tmp_path, root, "--load", "whole", "--json") as running:
        running.ready()
        url = ("--url", running.http)
        said = trb(tmp_path, "load", "above", *url)
        assert said.returncode == Code.MODEL_FAILED.exit
        assert re.search(r"raises: ValueError: boom\n.*/raises/1/model\.py\(\d+\): initialize", said.stderr)
        assert "above" not in said.stderr
        with urllib.request.urlopen(f"{running.http}/v2/health/ready") as answer:
            assert answer.status == 200  # a balancer that asks goes on sending requests to the others
        # Only the log of the server says why, and an earlier line of it must not be taken for the reason.
        said = trb(tmp_path, "load", "newer", *url)
        assert said.returncode == Code.MODEL_FAILED.exit
        assert "newer: config.pbtxt:6:15: " in said.stderr
        assert "model_metrics" in said.stderr
        config.write_text(config.read_text().replace("model_metrics { }\n", ""))
        assert trb(tmp_path, "load", "newer", *url).returncode == 0
        said = trb(tmp_path, "load", "dies", *url)
        assert said.returncode == Code.MODEL_FAILED.exit
        assert "dies: its Python process ended while starting (exit code 3)" in said.stderr
        assert "last words" in said.stderr
        assert running.infer("whole") == running.infer("newer") == 200
        running.note()
        assert running.process.poll() is None


@pytest.mark.parametrize("seen", [True, False])
def test_the_watch_knows_models_that_were_loaded_later(tmp_path: Path, seen: bool) -> None:
    """Also if the watch was too slow to see the process before it ended."""
    root = tmp_path / "repo"
    python(root, "first")
    python(root, "step")
    ensemble(root, "later", "step")
    with serve(tmp_path, root, "--load", "first", "--json") as running:
        running.ready()
        url = ("--url", running.http)
        if not seen:
            running.process.send_signal(signal.SIGSTOP)
        assert trb(tmp_path, "load", "later", *url).returncode == 0
        assert running.infer("later") == 200
        if seen:
            time.sleep(0.5)
        os.kill(running.stub("step"), signal.SIGKILL)
        running.process.send_signal(signal.SIGCONT)
        until(lambda: "model 'step' is ready again" in running.err.read_text())
        assert running.infer("later") == 200
        running.note()
        assert trb(tmp_path, "unload", "later", "first", *url).returncode == 0
        until(lambda: not loaded(running))
        assert running.process.poll() is None
        assert running.err.read_text().count("lost its Python process") == 1
        assert running.end(signal.SIGTERM) == 0


def test_a_server_that_does_not_load_on_request(tmp_path: Path) -> None:
    """tritonserver as it starts by default, without explicit mode."""
    root = tmp_path / "repo"
    python(root, "first")
    with raw_server(root, tmp_path, arguments=()) as server:
        for verb in ("load", "unload"):
            said = trb(tmp_path, verb, "first", "--url", server.http)
            assert said.returncode == Code.NOT_EXPLICIT.exit, said.stderr
            assert "does not load or unload models on request" in said.stderr
            assert "--model-control-mode=explicit" in said.stderr


def test_no_server_at_all(tmp_path: Path) -> None:
    said = trb(tmp_path, "load", "x", "--url", "http://127.0.0.1:1")
    assert said.returncode == Code.UNREACHABLE.exit
    assert "no server answers" in said.stderr
