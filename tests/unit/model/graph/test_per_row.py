from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tiny import externalise, save, weights
from tiny_onnx import node, tensor

from triton_repo_builder.model.graph import per_row
from triton_repo_builder.model.graph import weights as graph_weights
from triton_repo_builder.model.read import skeleton

WIDE = 48


def _model(path: Path, *, opset: int = 17) -> Path:
    """A table of 64 rows, a Gemm with a transposed matrix and a bias, and a MatMul.

    A CPU without VNNI adds two neighbouring products in 16 bits: every other weight is small.
    """
    small = np.where(np.arange(WIDE) % 2, 0.01, 1).astype(np.float32)
    constants = {
        "table": weights(64, WIDE, seed=1),
        "turned": weights(WIDE, WIDE, seed=2) / 7 * small,
        "bias": weights(WIDE, seed=3),
        "matrix": weights(WIDE, WIDE, seed=4) / 7 * small[:, None],
    }
    nodes = [
        node("Gather", ["table", "ids"], ["row"]),
        node("Gemm", ["row", "turned", "bias"], ["first"], transB=1),
        node("Tanh", ["first"], ["inner"]),
        node("MatMul", ["inner", "matrix"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    inputs = [tensor("ids", ["batch"], onnx.TensorProto.INT64)]
    graph = helper.make_graph(nodes, "g", inputs, [tensor("y", ["batch", WIDE])], initializers)
    return save(path, graph, opset=opset)


def _run(path: Path, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (answer,) = onnxruntime.InferenceSession(str(path)).run(None, {"ids": ids})
    return np.asarray(answer)


@pytest.mark.parametrize("opset", [11, 13, 17, 18])
@pytest.mark.parametrize("external", [False, True])
def test_answers_are_near_and_rows_do_not_depend_on_each_other(
    opset: int, external: bool, tmp_path: Path
) -> None:
    path = _model(tmp_path / "model.onnx", opset=opset)
    ids = np.arange(16)
    exact = _run(path, ids)
    if external:
        externalise(path)
    output = tmp_path / "int8.onnx"
    assert per_row.quantise(skeleton.read(path), output, metadata={"made": "so"}) == 2
    near = _run(output, ids)
    assert np.abs(near - exact).max() < 0.03 * np.abs(exact).max()
    assert np.abs(near - exact).max() > 0
    for one in ids:
        np.testing.assert_array_equal(_run(output, ids[one : one + 1])[0], near[one])
    model = onnx.load(output)
    assert {entry.key: entry.value for entry in model.metadata_props} == {"made": "so"}
    onnx.checker.check_model(model, full_check=True)
    floats = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    assert max(np.prod(tensor.dims, dtype=int) for tensor in floats) < per_row.SMALLEST


def test_blocks_of_a_matrix_give_what_the_whole_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = skeleton.read(_model(tmp_path / "model.onnx"))
    per_row.quantise(read, tmp_path / "whole.onnx")
    monkeypatch.setattr(per_row, "BLOCK", 5 * 4 * WIDE)
    per_row.quantise(read, tmp_path / "blocks.onnx")
    assert (tmp_path / "whole.onnx").read_bytes() == (tmp_path / "blocks.onnx").read_bytes()


def test_excluded_products_stay_as_they_are(tmp_path: Path) -> None:
    read = skeleton.read(_model(tmp_path / "model.onnx"))
    assert per_row.products(read) == ("first", "y")
    output = tmp_path / "int8.onnx"
    assert per_row.quantise(read, output, excluded=["first"]) == 1
    model = onnx.load(output)
    assert {made.op_type for made in model.graph.node} >= {"Gemm", "MatMulInteger", "Gather"}
    assert "turned" in {tensor.name for tensor in model.graph.initializer}


def test_a_row_of_zeros_gives_zeros(tmp_path: Path) -> None:
    path = _model(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((64, WIDE), np.float32), "table"))
    onnx.save(model, path)
    exact = _run(path, np.array([0]))
    per_row.quantise(skeleton.read(path), tmp_path / "int8.onnx")
    assert np.abs(_run(tmp_path / "int8.onnx", np.array([0])) - exact).max() < 0.1


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_onnxruntime_makes_one_kernel_of_product_cast_and_scales(opset: int, tmp_path: Path) -> None:
    per_row.quantise(skeleton.read(_model(tmp_path / "model.onnx", opset=opset)), tmp_path / "int8.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "int8.onnx"), options, providers=["CPUExecutionProvider"])
    kinds = [made.op_type for made in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 2 and "MatMulInteger" not in kinds
    assert kinds.count("QuantizeLinear") == 2


def test_weights_over_the_limit_of_a_file_go_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _model(tmp_path / "model.onnx")
    monkeypatch.setattr(graph_weights, "LARGEST", 6000)
    per_row.quantise(skeleton.read(path), tmp_path / "int8.onnx")
    assert (tmp_path / "int8.onnx.data").stat().st_size > 6000 > (tmp_path / "int8.onnx").stat().st_size
    assert np.abs(_run(tmp_path / "int8.onnx", np.arange(4)) - _run(path, np.arange(4))).max() < 0.2


def test_an_old_opset_has_nothing_to_quantise(tmp_path: Path) -> None:
    assert per_row.products(skeleton.read(_model(tmp_path / "model.onnx", opset=10))) == ()


def test_of_a_gelu_only_the_largest_number_is_looked_for(tmp_path: Path) -> None:
    """Its negative ones are known to be small, so that the last product needs one pass less."""
    export = Path(__file__).parents[3] / "data" / "models" / "embedding" / "minilm_fp32"
    per_row.quantise(skeleton.read(export / "model.onnx"), tmp_path / "int8.onnx")
    nodes = onnx.load(tmp_path / "int8.onnx", load_external_data=False).graph.node
    kinds = [node.op_type for node in nodes]
    assert 0 < kinds.count("Tanh") == kinds.count("ReduceMax") - kinds.count("ReduceMin")
