"""``--model models:/…`` and ``runs:/…``: a real MLflow server, and what it says on a real tritonserver."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path
from threading import Thread

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny

from tests.support import mlflow_server, s3_server
from tests.support.cli import ARGV
from tests.support.mlflow_server import MlflowServer
from triton_repo_builder.base.errors import Code

pytestmark = pytest.mark.timeout(900)
EXAMPLE = np.random.default_rng(3).normal(size=(2, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tensor_model(tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[MlflowServer]:
    with mlflow_server.running(tmp_path_factory.mktemp("mlflow"), model, EXAMPLE.tolist()) as running:
        yield running


PAGE = Path(__file__).resolve().parents[2] / "docs" / "mlflow.md"


def masked(text: str) -> str:
    """Without ports, runs and digests."""
    return re.sub(r":\d{4,5}/|[0-9a-f]{32}|@[0-9a-f]{8}", "#", text)


def trb(cwd: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [*ARGV, *map(str, arguments)]
    asked = {**os.environ, "XDG_CACHE_HOME": str(cwd / "cache"), **environment}
    return subprocess.run(argv, capture_output=True, text=True, env=asked, cwd=cwd, timeout=240, check=False)


def served(repository: Path, name: str) -> dict[str, object]:
    entry: dict[str, object] = json.loads((repository / "manifest.json").read_text())["endpoints"][name]
    return entry


@pytest.mark.mlflow
@pytest.mark.server
def test_a_version_becomes_an_endpoint_that_leads_to_its_run(
    server: MlflowServer, model: Path, tmp_path: Path
) -> None:
    done = trb(tmp_path, "build", "--model", "models:/sentiment/1", **server.environment(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    page = f"{server.url}/#/experiments/{server.logged['experiment']}/runs/{server.logged['run']}"
    origin = served(tmp_path / "model_repository", "sentiment")["provenance"]
    assert isinstance(origin, dict)
    assert origin["source_run"] == page and origin["dataset_id"] == f"reviews@{server.logged['digest']}"
    labels = origin["labels"]
    assert labels["mlflow.model"] == "sentiment/1" and labels["team"] == "search"
    assert labels["note"] == "two lines" and labels["stage"] == "gold"
    said = done.stdout + done.stderr + trb(tmp_path, "provenance").stdout
    assert page in said
    shown = [line[4:] for line in PAGE.read_text().partition("    $ trb build")[2].splitlines()[1:]]
    shown = list(takewhile(str.strip, shown))
    assert len(shown) > 12
    missing = [
        line
        for line in shown
        if line != "…" and not line.startswith("$") and masked(line) not in masked(said)
    ]
    assert not missing, said
    cases = json.loads((tmp_path / "model_repository" / "sentiment" / "smoke.json").read_text())["cases"]
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"X": EXAMPLE})
    for row in range(2):
        case = next(each for each in cases if each["name"] == f"input_example_{row + 1}")
        np.testing.assert_allclose(case["inputs"][0]["data"], EXAMPLE[row], rtol=1e-6)
        np.testing.assert_allclose(case["outputs"][0]["data"], expected[row], rtol=1e-5)
    smoked = trb(tmp_path, "smoke", "model_repository")
    assert smoked.returncode == 0, smoked.stdout + smoked.stderr


@pytest.mark.mlflow
@pytest.mark.parametrize(
    "address", ["models:/sentiment@champion", "models:/sentiment/latest", "runs:/{run}/classifier"]
)
def test_other_addresses_are_the_same_model(server: MlflowServer, tmp_path: Path, address: str) -> None:
    asked = address.format(run=server.logged["run"])
    done = trb(
        tmp_path, "build", "--model", asked, "--name", "same", **server.environment(tmp_path / "cache")
    )
    assert done.returncode == 0, done.stderr
    origin = served(tmp_path / "model_repository", "same")["provenance"]
    assert isinstance(origin, dict) and str(origin["source_run"]).endswith(server.logged["run"])


@pytest.mark.mlflow
@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("models:/nobody/1", Code.NOT_FOUND, "nobody"),
        ("models:/sentiment/7", Code.NOT_FOUND, "no such model"),
        ("models:/sentiment@nobody", Code.NOT_FOUND, "no such model"),
        ("models:/sentiment/Production", Code.NOT_FOUND, "stage 'Production'"),
        (f"runs:/{'0' * 32}/model", Code.NOT_FOUND, "no such model"),
        ("runs:/{run}/other", Code.NOT_FOUND, "no MLmodel there"),
        ("models:/python/1", Code.NOT_FOUND, "no ONNX flavour, only python_function"),
        ("models:/sentiment", Code.USAGE, "is no address of MLflow"),
    ],
)
def test_what_is_not_there_is_one_line(
    server: MlflowServer, tmp_path: Path, address: str, code: Code, words: str
) -> None:
    asked = address.format(run=server.logged["run"])
    done = trb(tmp_path, "build", "--model", asked, **server.environment(tmp_path / "cache"))
    assert done.returncode == code.exit and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "model_repository").exists()


def test_without_a_server_the_variable_is_named(tmp_path: Path) -> None:
    done = trb(tmp_path, "build", "--model", "models:/sentiment/1", MLFLOW_TRACKING_URI="")
    assert done.returncode == Code.USAGE.exit and "MLFLOW_TRACKING_URI is not set" in done.stderr
    done = trb(tmp_path, "build", "--model", "models:/a/1", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert done.returncode == Code.STORAGE_UNREACHABLE.exit and "cannot be reached" in done.stderr


def test_a_signature_of_another_graph_is_refused(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "logged"
    folder.mkdir()
    shutil.copyfile(model, folder / "model.onnx")
    inputs = json.dumps(
        [{"name": "Z", "type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 32]}}]
    )
    text = f"flavors:\n  onnx:\n    data: model.onnx\nsignature:\n  inputs: '{inputs}'\n"
    (folder / "MLmodel").write_text(text)
    done = trb(tmp_path, "build", "--model", folder)
    assert done.returncode == Code.UNSUPPORTED_MODEL.exit and "input 'Z' of its signature" in done.stderr
    (folder / "MLmodel").write_text(text.replace('"Z"', '"X"').replace("float32", "int64"))
    done = trb(tmp_path, "build", "--model", folder)
    assert done.returncode == Code.UNSUPPORTED_MODEL.exit and "int64 in its signature" in done.stderr


def test_a_file_on_a_web_server_with_its_external_data(tmp_path: Path, model: Path) -> None:
    """As ClearML's file server has it."""
    web = tmp_path / "web"
    web.mkdir()
    shutil.copyfile(model, web / "churn.onnx")
    tiny.externalise(web / "churn.onnx", "churn.data")
    handler = partial(SimpleHTTPRequestHandler, directory=str(web))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        Thread(target=files.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{files.server_port}"
        done = trb(tmp_path, "build", "--model", f"{url}/churn.onnx")
        missing = trb(tmp_path, "build", "--model", f"{url}/other.onnx")
        folder = trb(tmp_path, "build", "--model", f"{url}/")
        files.shutdown()
    assert done.returncode == 0, done.stderr
    assert served(tmp_path / "model_repository", "churn")
    assert missing.returncode == Code.DOWNLOAD_FAILED.exit and "404" in missing.stderr
    assert folder.returncode == Code.USAGE.exit and "names no .onnx file" in folder.stderr


def test_a_file_and_a_folder_in_a_bucket(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.use(monkeypatch)
    with s3_server.running(tmp_path) as address:
        bucket = s3_server.client(address)
        bucket.upload_file(str(model), s3_server.BUCKET, "models/churn/model.onnx")
        environment = {**s3_server.CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{address}"}
        one = trb(
            tmp_path, "build", "--model", f"s3://{s3_server.BUCKET}/models/churn/model.onnx", **environment
        )
        whole = trb(tmp_path, "build", "--model", f"s3://{s3_server.BUCKET}/models/churn", **environment)
    assert one.returncode == 0, one.stderr
    assert whole.returncode == 0, whole.stderr
    names = json.loads((tmp_path / "model_repository" / "manifest.json").read_text())["endpoints"]
    assert names.keys() == {"model", "churn"}
    assert onnx.load(tmp_path / "model_repository" / "churn" / "1" / "model.onnx").graph.input[0].name == "X"
