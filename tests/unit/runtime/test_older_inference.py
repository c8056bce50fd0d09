"""Configurations for a release whose ONNX Runtime infers less than the one that serves them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import older_graphs
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from tiny_onnx import BOOL, identity, model, node, tensor

from triton_repo_builder.base import releases

sys.path.append(str(Path(__file__).parents[3] / "triton_repo_builder" / "runtime" / "onnxruntime_backend"))
checks = importlib.import_module("ort_checks")
errors = importlib.import_module("ort_errors")
older = importlib.import_module("ort_older")

TYPES = {"tensor(float)": "TYPE_FP32", "tensor(bool)": "TYPE_BOOL"}


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the embedded engine writes beside the backend."""
    path = tmp_path / "older_inference.json"
    path.write_text(json.dumps(releases.older_inference()))
    monkeypatch.setattr(older, "TABLE", path)
    return path


def refusal(folder: Path, dims: dict[str, Sequence[int]], batch: int = 8) -> str:
    """What the backend says of model.onnx with these output dims; nothing if it takes them."""
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    types = {value.name: TYPES[value.type] for value in session.get_outputs()}
    rows = session.get_inputs()[0].shape[0]
    first = [] if batch else [rows if isinstance(rows, int) else -1]
    config: dict[str, Any] = {
        "name": "m",
        "max_batch_size": batch,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [*first, 4]}],
        "output": [{"name": name, "data_type": types[name], "dims": dims[name]} for name in dims],
    }
    try:
        checks.check(config, session, older.sessions(config, folder))
    except errors.Refused as refused:
        return str(refused)
    return ""


def put(folder: Path, content: bytes) -> Path:
    (folder / "model.onnx").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "batch", "taken", "refused"),
    [
        ("einsum", 8, ([-1], [8]), ([4], [-1, -1], [1], [])),
        ("einsum_unstated", 8, ([-1], [8]), ([4], [-1, -1], [1], [])),
        ("greater", 8, ([-1], [4]), ([8], [-1, -1], [1])),
        # Unstated, it is a scalar to the C++ backend of 24.10, which then takes 1 alone.
        ("greater_unstated", 0, ([1], [-1, 4], [1, 1]), ([-1], [-1, -1], [4])),
        ("less", 8, ([-1], [4]), ([8], [-1, -1], [1])),
        ("less_unstated", 0, ([1], [-1, 4], [1, 1]), ([-1], [-1, -1], [4])),
        ("group", 0, ([-1, -1], [2, 4]), ([-1, 4], [2, -1], [1], [-1])),
        ("group_unstated", 0, ([-1, -1], [2, 4]), ([-1, 4], [2, -1], [1], [-1])),
    ],
)
def test_what_any_release_takes_is_taken(
    tmp_path: Path, name: str, batch: int, taken: Sequence[Sequence[int]], refused: Sequence[Sequence[int]]
) -> None:
    put(tmp_path, older_graphs.GRAPHS[name])
    assert [dims for dims in taken if refusal(tmp_path, {"Y": dims}, batch)] == []
    assert [dims for dims in refused if not refusal(tmp_path, {"Y": dims}, batch)] == []


def two_outputs() -> bytes:
    """Y, behind an Einsum, and Z, which no release infers less of."""
    return model(
        [older_graphs.EINSUM, node("Relu", ["E"], ["Y"]), node("Relu", ["X"], ["Z"])],
        [tensor("X", ["batch", 4])],
        [tensor("Y", ["batch", "y"]), tensor("Z", ["batch", "z"])],
        initializers=[older_graphs.W],
    )


def test_another_output_of_the_graph_is_compared_exactly(tmp_path: Path) -> None:
    put(tmp_path, two_outputs())
    assert refusal(tmp_path, {"Y": [-1], "Z": [4]}) == ""
    assert refusal(tmp_path, {"Y": [8], "Z": [4]}) == ""
    assert "tensor 'Z': the model expects 2 dimensions (shape [-1,4])" in refusal(
        tmp_path, {"Y": [8], "Z": [-1]}
    )
    assert refusal(tmp_path, {"Y": [-1], "Z": [-1]})


def test_no_release_infers_less_of_one_operator_alone(tmp_path: Path) -> None:
    """1.20.1 has the sizes of Einsum and not those of GreaterOrEqual; the other way round no release does."""
    content = model(
        [older_graphs.EINSUM, node("Relu", ["E"], ["Y"]), node("GreaterOrEqual", ["X", "X"], ["B"])],
        [tensor("X", ["batch", 4])],
        [tensor("Y", ["batch", "y"]), tensor("B", ["batch", "b"], BOOL)],
        initializers=[older_graphs.W],
    )
    put(tmp_path, content)
    for dims, fits in (((8, 4), True), ((8, -1), True), ((-1, -1), True), ((-1, 4), False)):
        assert (refusal(tmp_path, {"Y": dims[:1], "B": dims[1:]}) == "") is fits


def test_before_the_operator_set_nothing_is_hidden(tmp_path: Path, table: Path) -> None:
    put(tmp_path, older_graphs.GRAPHS["einsum"])
    table.write_text(json.dumps([{"Einsum": [22, "rank"]}]))
    assert refusal(tmp_path, {"Y": [-1]})
    table.write_text(json.dumps([{"Einsum": [21, "rank"]}]))
    assert refusal(tmp_path, {"Y": [-1]}) == ""


def test_a_server_with_the_releases_own_runtime_compares_exactly(tmp_path: Path, table: Path) -> None:
    table.unlink()
    put(tmp_path, older_graphs.GRAPHS["einsum"])
    assert "(shape [-1,8])" in refusal(tmp_path, {"Y": [-1]})


def test_where_the_graph_cannot_be_read_the_comparison_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, older_graphs.GRAPHS["einsum"])
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "(shape [-1,8])" in refusal(tmp_path, {"Y": [-1]})


def test_a_graph_that_fits_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, older_graphs.GRAPHS["einsum"])
    monkeypatch.setattr(older, "_graph", lambda path, table: pytest.fail("read again"))
    assert refusal(tmp_path, {"Y": [8]}) == ""


def test_a_graph_without_such_operators_is_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, identity(["batch", 4]))
    monkeypatch.setattr(older, "open_graph", lambda *arguments: pytest.fail("opened again"))
    assert "(shape [-1,4])" in refusal(tmp_path, {"Y": [-1]})


def test_weights_beside_the_graph(tmp_path: Path) -> None:
    proto = onnx.load_model_from_string(older_graphs.GRAPHS["einsum"])
    proto.graph.node.append(helper.make_node("MatMul", ["Y", "V"], ["T"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((8, 2048), np.float32), "V"))
    proto.graph.output.append(tensor("T", ["batch", "t"]))
    onnx.save_model(proto, tmp_path / "model.onnx", save_as_external_data=True, location="w.bin")
    assert refusal(tmp_path, {"Y": [-1], "T": [2048]}) == ""
    assert refusal(tmp_path, {"Y": [-1], "T": [-1]})
