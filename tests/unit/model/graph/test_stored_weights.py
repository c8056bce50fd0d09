"""Weights that are stored as integers become the float constants that ONNX Runtime computes of them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tiny import externalise, save
from tiny_onnx import node, tensor

from triton_repo_builder.model.graph import per_row, stored_weights
from triton_repo_builder.model.graph import weights as graph_weights
from triton_repo_builder.model.read import skeleton

WIDE = 48
CHANCE = np.random.default_rng(5)
SIGNED = CHANCE.integers(-127, 128, (WIDE, WIDE)).astype(np.int8)
SIGNED[1::2] //= 100
"""Every other one is small: a CPU without VNNI adds two neighbouring products in 16 bits."""
UNSIGNED = CHANCE.integers(0, 256, (WIDE, WIDE)).astype(np.uint8)
SCALES = CHANCE.uniform(0.001, 0.002, WIDE).astype(np.float32)
ZEROS = CHANCE.integers(120, 136, WIDE).astype(np.uint8)
CONSTANTS: dict[str, npt.NDArray[Any]] = {
    "signed": SIGNED,
    "unsigned": UNSIGNED,
    "scale": np.float32(0.0015),
    "scales": SCALES,
    "scales_of_rows": SCALES[:, None],
    "scales_of_blocks": CHANCE.uniform(0.001, 0.002, (3, WIDE)).astype(np.float32),
    "halves": SCALES.astype(np.float16),
    "zero": np.uint8(128),
    "zeros": ZEROS,
    "zeros_as_float": ZEROS.astype(np.float32),
}
FORMS = {
    "one scale": [node("DequantizeLinear", ["signed", "scale"], ["w"])],
    "one scale and zero point": [node("DequantizeLinear", ["unsigned", "scale", "zero"], ["w"])],
    "a scale for each column": [node("DequantizeLinear", ["unsigned", "scales", "zeros"], ["w"], axis=1)],
    "a scale for each row": [node("DequantizeLinear", ["unsigned", "scales", "zeros"], ["w"], axis=-2)],
    "blocks": [node("DequantizeLinear", ["signed", "scales_of_blocks"], ["w"], axis=0, block_size=16)],
    "cast and scale": [
        node("Cast", ["signed"], ["float"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["float", "scales"], ["w"]),
    ],
    "cast, zero point, scale, transposed": [
        node("Cast", ["unsigned"], ["float"], to=onnx.TensorProto.FLOAT),
        node("Sub", ["float", "zeros_as_float"], ["centred"]),
        node("Mul", ["centred", "scales"], ["turned"]),
        node("Transpose", ["turned"], ["w"]),
    ],
    "scales of 16 bits": [
        node("Cast", ["halves"], ["scales_as_float"], to=onnx.TensorProto.FLOAT),
        node("Identity", ["signed"], ["same"]),
        node("DequantizeLinear", ["same", "scales_as_float"], ["w"], axis=0),
    ],
}


def _model(
    path: Path, nodes: list[onnx.NodeProto], *, opset: int = 21, as_nodes: bool = False, into: str = "MatMul"
) -> Path:
    """x times the weight ``w``, or rows of it."""
    read = {name for each in nodes for name in each.input}
    tensors = [numpy_helper.from_array(value, name) for name, value in CONSTANTS.items() if name in read]
    stated = [helper.make_node("Constant", [], [each.name], value=each) for each in tensors if as_nodes]
    last = node("Gather", ["w", "x"], ["y"]) if into == "Gather" else node(into, ["x", "w"], ["y"])
    kind = onnx.TensorProto.INT64 if into == "Gather" else onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [*stated, *nodes, last],
        "g",
        [tensor("x", ["batch"] if into == "Gather" else ["batch", WIDE], kind)],
        [tensor("y", ["batch", WIDE])],
        [] if as_nodes else tensors,
    )
    return save(path, graph, opset=opset, ir_version=10)


def _run(path: Path, *, optimised: bool = False) -> npt.NDArray[Any]:
    """The answer; an optimised ``DequantizeLinear`` and ``MatMul`` may round the activations to 8 bits."""
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rows = session.get_inputs()[0].type == "tensor(int64)"
    x = np.arange(8) if rows else np.random.default_rng(9).normal(size=(8, WIDE)).astype(np.float32)
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("as_nodes", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_the_folded_model_has_the_same_numbers_and_no_integers(
    form: str, as_nodes: bool, tmp_path: Path
) -> None:
    path, folded = _model(tmp_path / "m.onnx", FORMS[form], as_nodes=as_nodes), tmp_path / "folded.onnx"
    assert stored_weights.fold(skeleton.read(path), folded) == 1
    model = onnx.load(folded)
    onnx.checker.check_model(model, full_check=True)
    assert [each.op_type for each in model.graph.node] == ["MatMul"]
    (weight,) = model.graph.initializer
    assert (weight.name, weight.data_type) == ("w", onnx.TensorProto.FLOAT)
    np.testing.assert_array_equal(_run(folded), _run(path))


@pytest.mark.parametrize("into", ["MatMul", "Gemm", "Gather"])
def test_int8_by_row_takes_the_folded_weight(into: str, tmp_path: Path) -> None:
    path, folded = _model(tmp_path / "m.onnx", FORMS["one scale"], into=into), tmp_path / "folded.onnx"
    exact = _run(path)
    externalise(path)
    assert stored_weights.fold(skeleton.read(path), folded) == 1
    products = per_row.quantise(skeleton.read(folded), tmp_path / "int8.onnx")
    assert products == (0 if into == "Gather" else 1)
    near = _run(tmp_path / "int8.onnx", optimised=True)
    np.testing.assert_allclose(near, exact, atol=0.03 * float(np.abs(exact).max()))


def test_a_weight_over_the_limit_of_a_file_goes_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_weights, "LARGEST", 6000)
    path, folded = _model(tmp_path / "m.onnx", FORMS["one scale"]), tmp_path / "folded.onnx"
    stored_weights.fold(skeleton.read(path), folded)
    assert (tmp_path / "folded.onnx.data").stat().st_size == 4 * WIDE * WIDE
    np.testing.assert_array_equal(_run(folded), _run(path))


def test_what_else_reads_the_integers_still_finds_them(tmp_path: Path) -> None:
    path = _model(tmp_path / "m.onnx", FORMS["cast and scale"])
    model = onnx.load(path)
    model.graph.node.insert(2, node("ReduceSum", ["float"], ["total"], keepdims=0))
    model.graph.output.append(tensor("total", []))
    onnx.save(model, path)
    assert stored_weights.fold(skeleton.read(path), tmp_path / "folded.onnx") == 1
    kinds = [each.op_type for each in onnx.load(tmp_path / "folded.onnx").graph.node]
    assert kinds == ["Cast", "ReduceSum", "MatMul"]
    np.testing.assert_array_equal(_run(tmp_path / "folded.onnx"), _run(path))


UNFOLDED = {
    "activations are dequantised, too": [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["near"]),
        node("DequantizeLinear", ["signed", "scales"], ["w"]),
        node("MatMul", ["near", "w"], ["z"]),
    ],
    "of 16 bits": [
        node("DequantizeLinear", ["signed", "halves"], ["half"]),
        node("Cast", ["x"], ["x16"], to=onnx.TensorProto.FLOAT16),
        node("MatMul", ["x16", "half"], ["z"]),
    ],
    "a float already": [node("Identity", ["scales_of_blocks"], ["w"]), node("MatMul", ["w", "x"], ["z"])],
}


@pytest.mark.parametrize("name", UNFOLDED)
def test_everything_else_stays_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    nodes = UNFOLDED[name]
    read = {each for step in nodes for each in step.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("x", [WIDE, WIDE])],
        [tensor("z", None, onnx.TensorProto.FLOAT16 if "16" in name else onnx.TensorProto.FLOAT)],
        [numpy_helper.from_array(value, key) for key, value in CONSTANTS.items() if key in read],
    )
    path = save(tmp_path / "m.onnx", graph, opset=21, ir_version=10)
    assert stored_weights.fold(skeleton.read(path), tmp_path / "folded.onnx") == 0
    assert not (tmp_path / "folded.onnx").exists()


def test_a_weight_that_an_input_overrides_stays(tmp_path: Path) -> None:
    path = _model(tmp_path / "m.onnx", FORMS["one scale"])
    model = onnx.load(path)
    model.graph.input.append(tensor("scale", []))
    onnx.save(model, path)
    assert stored_weights.fold(skeleton.read(path), tmp_path / "folded.onnx") == 0
