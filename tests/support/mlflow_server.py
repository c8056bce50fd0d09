"""A real MLflow server on loopback, and models that were logged to it, in the environment of .ci/mlflow."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import serve_repository as made

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".cache" / "mlflow" / "bin" / "python"
LOG = """
import json, sys
import mlflow, numpy as np, onnx
from mlflow.models import infer_signature

mlflow.set_experiment("sentiment")
model, folder = onnx.load(sys.argv[1]), sys.argv[2]
example = np.array(json.loads(sys.argv[3]), dtype=np.float32)
with mlflow.start_run(tags={"team": "search", "note": "two\\nlines"}) as run:
    mlflow.log_param("epochs", 3)
    data = mlflow.data.from_numpy(example, name="reviews")
    mlflow.log_input(data, context="training")
    logged = mlflow.onnx.log_model(
        model, name="classifier", registered_model_name="sentiment", input_example=example,
        pip_requirements=[],
        signature=infer_signature(example, np.zeros((len(example), 2), dtype=np.float32)),
    )
client = mlflow.MlflowClient()
client.set_registered_model_alias("sentiment", "champion", 1)
client.set_model_version_tag("sentiment", "1", "stage", "gold")
class Own(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input: list[str]) -> list[str]:
        raise SystemExit("the code of a model was run")
with mlflow.start_run() as other:
    name = "python"
    mlflow.pyfunc.log_model(name=name, python_model=Own(), registered_model_name=name, pip_requirements=[])
print(json.dumps({"run": run.info.run_id, "experiment": run.info.experiment_id, "digest": data.digest}))
"""


def python() -> Path | None:
    """The Python that has it; None without."""
    return PYTHON if PYTHON.exists() else None


@dataclass(frozen=True)
class MlflowServer:
    """A running server."""

    url: str
    logged: dict[str, Any]
    """The run, its experiment, and the digest of its data set."""

    def environment(self, cache: Path) -> dict[str, str]:
        """Variables for a process that shall ask this server."""
        return {"MLFLOW_TRACKING_URI": self.url, "XDG_CACHE_HOME": str(cache)}


@contextmanager
def running(folder: Path, model: Path, example: list[list[float]]) -> Iterator[MlflowServer]:
    """A server, with that model as version 1 of ``sentiment``, logged with this input example."""
    port = made.free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [
        str(PYTHON),
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    argv += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    argv += ["--artifacts-destination", str(folder / "artifacts")]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": url, "GIT_PYTHON_REFRESH": "quiet"}
    environment["PATH"] = f"{PYTHON.parent}:{environment['PATH']}"
    environment.pop("PYTHONPATH", None)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        made.until(lambda: _answers(url), 240)
        asked = [str(PYTHON), "-c", LOG, str(model), str(folder), json.dumps(example)]
        done = subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        yield MlflowServer(url, json.loads(done.stdout.splitlines()[-1]))
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
