"""Int8 of the real all-MiniLM-L6-v2: small, near, and the same in every batch on a real server."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli import FEW, call, trb
from onnx import helper, numpy_helper

from triton_repo_builder.model.graph import walk

pytestmark = pytest.mark.server
PASSED = {"passed", "ok"}


@pytest.fixture(scope="module")
def optimised(exported_minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("optimised") / "minilm"
    trb("optimize", exported_minilm / "minilm_fp32", "-o", out)
    return out


@pytest.mark.exported
def test_it_is_a_quarter_of_the_size_and_near(optimised: Path) -> None:
    original, int8 = json.loads((optimised / "optimize.json").read_text())["steps"]
    assert int8["step"] == "int8 per-row"
    assert int8["bytes"] < 0.26 * original["bytes"]
    assert int8["accuracy"]["mean"] > 0.996
    assert int8["accuracy"]["quantile_1_percent"] > 0.99


@pytest.mark.exported
def test_what_quantize_dynamic_gives_is_refused(exported_minilm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call("optimize", exported_minilm / "minilm_fp32", "-o", out, "--steps", "int8:dynamic")
    assert (done.returncode, "[accuracy-lost]" in done.stderr, out.exists()) == (1, True, False)


@pytest.mark.exported
def test_served_answers_do_not_depend_on_the_batch(optimised: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    trb("build", "--model", optimised, "--output", repository, "--instances", "1")
    facts = json.loads((repository / "manifest.json").read_text())["endpoints"]["minilm"]
    assert '"padding": "ragged"' in json.dumps(facts) and '"rows": "packed"' in json.dumps(facts)
    report = json.loads(trb("smoke", repository, "--json"))
    assert {check["status"] for check in report["checks"]} <= PASSED
    batched = [
        check for check in report["checks"] if check["group"] in ("in a batch", "beside another request")
    ]
    assert batched and all(check["allowed"] <= 1e-4 for check in batched)


@pytest.mark.slow
def test_a_small_model_by_row_joins_in_batches(exported: Path, tmp_path: Path) -> None:
    out, repository = tmp_path / "int8", tmp_path / "repository"
    steps = ("--steps", "int8:per-row", "--max-drop", "0.2")
    trb("optimize", exported / "minilm_fp32", "-o", out, *steps)
    trb("build", "--model", out, "--output", repository, "--instances", "1")
    manifest = (repository / "manifest.json").read_text()
    assert '"rows": "packed"' in manifest
    report = json.loads(trb("smoke", repository, *FEW, "--json"))
    assert {check["status"] for check in report["checks"]} <= PASSED
    allowed = {check["group"]: check["allowed"] for check in report["checks"] if check["allowed"]}
    assert allowed["golden cases"] > allowed["in a batch"] == allowed["beside another request"]


def _with_stored_integers(source: Path, target: Path) -> Path:
    """The folder with each matrix as int8, which the graph multiplies by a scale for each column."""
    shutil.copytree(source, target)
    model = onnx.load(target / "model.onnx")
    read = {node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    kept, nodes = [], []
    for matrix in model.graph.initializer:
        if matrix.name not in read or len(matrix.dims) != 2:
            kept.append(matrix)
            continue
        values = numpy_helper.to_array(matrix)
        scale = np.abs(values).max(axis=0, keepdims=True) / np.float32(127)
        integers, scales, floats = (f"{matrix.name}/{part}" for part in ("integers", "scales", "floats"))
        rounded = np.rint(values / scale).astype(np.int8)
        rounded[1::2] //= 100  # a CPU without VNNI adds two neighbouring products in 16 bits
        kept.append(numpy_helper.from_array(rounded, integers))
        kept.append(numpy_helper.from_array(scale, scales))
        nodes.append(helper.make_node("Cast", [integers], [floats], to=onnx.TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [floats, scales], [matrix.name]))
    assert nodes
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    nodes += model.graph.node
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, target / "model.onnx")
    return target


def test_weights_that_are_stored_as_integers_compute_with_them(exported: Path, tmp_path: Path) -> None:
    model = _with_stored_integers(exported / "minilm_fp32", tmp_path / "model")
    repository = tmp_path / "repository"
    trb("build", "--model", model, "--output", repository, "--precision", "int8", "--instances", "1")
    assert "optimised" in (repository / "manifest.json").read_text()
    files = [onnx.load(file, load_external_data=False) for file in repository.glob("*_model/1/*.onnx")]
    kinds = {node.op_type for model in files for graph in walk.graphs(model.graph) for node in graph.node}
    assert "MatMulInteger" in kinds
    report = json.loads(trb("smoke", repository, *FEW, "--json"))
    assert {check["status"] for check in report["checks"]} <= PASSED
