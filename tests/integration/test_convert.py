"""``trb convert`` with torch: the served answers are PyTorch's, and a changed weight is seen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from conformance import __main__ as conformance
from conformance import serve, tasks
from conformance.__main__ import EXPORT_PYTHON
from jsonschema import Draft202012Validator
from onnx import numpy_helper

from tests.integration.test_main_job import infer
from tests.support import hub as support
from tests.support.cli import ARGV, FEW, call, trb
from tests.support.zoo import Zoo
from triton_repo_builder.base.files import hash_file

pytestmark = [pytest.mark.server, pytest.mark.exported, pytest.mark.timeout(1500)]
ROOT = Path(__file__).resolve().parents[2]
HANDFUL = (
    "BERT/text-classification",
    "RoBERTa/fill-mask",
    "DistilBERT/question-answering",
    "BERT/token-classification",
    "ViT/image-classification",
    "ConvNeXt/image-embedding",
)


@pytest.fixture(scope="module")
def converted(minilm_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("converted") / "minilm"
    assert EXPORT_PYTHON.exists(), "no export environment: run the tests with 'make test-all', which makes it"
    trb("convert", minilm_weights, "-o", target, "--python", EXPORT_PYTHON)
    return target


def smoke(zoo: Zoo, repository: Path) -> subprocess.CompletedProcess[str]:
    with zoo.serving(repository) as server:
        urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        return call("smoke", repository, *urls, *FEW, "--json")


def test_a_server_answers_as_pytorch_does(converted: Path, zoo: Zoo, tmp_path: Path) -> None:
    repository = tmp_path / "model_repository"
    trb("build", "--model", converted, "--name", "minilm", "-o", repository, "--batching", "on")
    recorded = json.loads((repository / "minilm" / "smoke.json").read_text())["recorded_with"]
    assert "PyTorch 2." in recorded and "ONNX" not in recorded
    done = smoke(zoo, repository)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["ok"], report["parity_proven"]) == (True, True)
    manifest = json.loads((repository / "manifest.json").read_text())
    conversion = manifest["endpoints"]["minilm"]["provenance"]["conversion"]
    assert conversion["converter"] == "optimum" and set(conversion["weights"]) == {"model.safetensors"}
    schema = json.loads((ROOT / "docs" / "schema" / "manifest.schema.json").read_text())
    Draft202012Validator(schema).validate(manifest)


def test_the_recorded_answers_are_those_of_sentence_transformers(
    converted: Path, exported_minilm: Path, zoo: Zoo, tmp_path: Path
) -> None:
    """Recorded elsewhere (tests/models/embedding.py), by another path to PyTorch."""
    repository = tmp_path / "model_repository"
    trb("build", "--model", converted, "--name", "pytorch", "-o", repository)
    reference = json.loads((exported_minilm / "minilm_fp32" / "reference.json").read_text())
    with zoo.serving(repository) as server:
        answers = infer(server, "pytorch", reference["texts"], "embedding")
    np.testing.assert_allclose(answers, np.array(reference["answers"]), atol=1e-4)


def test_a_lost_weight_fails_the_smoke_test(converted: Path, zoo: Zoo, tmp_path: Path) -> None:
    """A conversion that lost something: built from a changed graph, with PyTorch's answers beside it."""
    damaged = tmp_path / "damaged"
    shutil.copytree(converted, damaged)
    graph = onnx.load(damaged / "model.onnx")
    names = [i for i in graph.graph.initializer if i.name.endswith("layer.3.attention.output.dense.bias")]
    assert len(names) == 1
    # Zeros, since the layer norm behind it takes away what is added to all of its numbers alike.
    names[0].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(names[0]) * 0, names[0].name))
    onnx.save(graph, damaged / "model.onnx")
    refused = call("build", "--model", damaged, "--name", "damaged", "-o", tmp_path / "none")
    assert "model.onnx is not as trb convert wrote it" in refused.stderr
    assert not (tmp_path / "none").exists()

    record = json.loads((damaged / "conversion.json").read_text())
    record["graph"]["model.onnx"] = hash_file(damaged / "model.onnx")
    (damaged / "conversion.json").write_text(json.dumps(record))
    repository = tmp_path / "model_repository"
    trb("build", "--model", damaged, "--name", "damaged", "-o", repository)
    done = smoke(zoo, repository)
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is False


def test_build_converts_a_name_on_the_hub_once(minilm_weights: Path, tmp_path: Path) -> None:
    model = "sentence-transformers/all-MiniLM-L6-v2"
    shutil.copytree(minilm_weights, tmp_path / "hub" / model)
    (tmp_path / "hub" / model / "modeling.py").write_text("raise SystemExit('the code of a model was run')\n")
    (tmp_path / "hub" / model / "pytorch_model.bin").write_bytes(b"a pickle")
    with support.running(tmp_path / "hub") as hub:
        own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TRB_CONVERT_PYTHON": str(EXPORT_PYTHON)}
        environment = {**os.environ, **hub.environment(tmp_path / "hf", **own)}
        commit = hub.commit(model)
        for output in ("first", "second"):
            argv = [*ARGV, "build", "--model", model, "--convert", "-o", output]
            done = subprocess.run(
                argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        assert not any(path.endswith((".py", ".bin")) for path in hub.fetched)
    (kept,) = (tmp_path / "cache" / "trb" / "converted").iterdir()
    assert (kept / "model.onnx").is_file()
    manifests = [(tmp_path / name / "manifest.json").read_text() for name in ("first", "second")]
    assert manifests[0] == manifests[1]
    origin = json.loads(manifests[0])["endpoints"]["all-MiniLM-L6-v2"]["provenance"]
    assert (origin["hub"]["commit"], origin["hub"]["file"]) == (commit, "model.safetensors")
    assert origin["conversion"]["weights"]["model.safetensors"] == origin["hub"]["files"]["model.safetensors"]


def answer_as_pytorch_does(cells: list[tasks.Cell], tmp_path: Path) -> None:
    assert cells
    refused = conformance.convert(cells, tmp_path)
    assert refused == {}
    results = list(conformance.results(cells, tmp_path))
    assert [f"{result.cell}: {result.reason}" for result in results if result.state == serve.FAIL] == []
    assert [result.cell for result in results if result.state == serve.PASS and result.asked]


def test_a_handful_of_architectures(tmp_path: Path) -> None:
    answer_as_pytorch_does(conformance.convertible(tasks.cells(HANDFUL)), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_every_row_that_can_be_converted(tmp_path: Path) -> None:
    answer_as_pytorch_does(conformance.convertible(tasks.cells()), tmp_path)
