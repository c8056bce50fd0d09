"""Heads and neurons that are zero are cut out of a real export, and the answers stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tiny import save, weights
from tiny_onnx import node, tensor

from triton_repo_builder.model.graph import prune
from triton_repo_builder.model.read import skeleton

Matrix = np.ndarray[Any, Any]


def _changed(source: Path, target: Path, change: Callable[[str, Matrix], None]) -> Path:
    """A copy whose matrices of products were changed in place; ``change`` gets the name of the product."""
    shutil.copyfile(source, target)
    model = onnx.load(target)
    constants = {one.name: one for one in model.graph.initializer}
    for made in model.graph.node:
        if made.op_type == "MatMul" and made.input[1] in constants:
            values = numpy_helper.to_array(constants[made.input[1]]).copy()
            change(made.name, values)
            constants[made.input[1]].CopyFrom(numpy_helper.from_array(values, made.input[1]))
    onnx.save(model, target)
    return target


def _run(path: Path) -> list[Matrix]:
    session = onnxruntime.InferenceSession(str(path))
    ids = np.arange(2, 14).reshape(2, 6)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return list(session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()}))


def _cut(path: Path, tmp_path: Path) -> tuple[prune.ZeroParts, Path]:
    return prune.cut(skeleton.read(path), tmp_path / "cut.onnx"), tmp_path / "cut.onnx"


@pytest.fixture
def bert(exported: Path) -> Path:
    """Two layers, 32 wide, of heads of 8 numbers."""
    return exported / "minilm_fp32" / "model.onnx"


def _head(name: str, values: Matrix) -> None:
    if "attention/output" in name:
        values[8:16] = 0


def _neuron(name: str, values: Matrix) -> None:
    if "/output/dense" in name and "attention" not in name:
        values[::2] = 0


@pytest.mark.parametrize(("change", "kind"), [(_head, "heads"), (_neuron, "neurons")])
def test_what_is_zero_is_cut_out(
    change: Callable[[str, Matrix], None], kind: str, bert: Path, tmp_path: Path
) -> None:
    pruned = _changed(bert, tmp_path / "model.onnx", change)
    found, output = _cut(pruned, tmp_path)
    assert getattr(found, kind) > 1 and found.single < 0.01
    assert output.stat().st_size < pruned.stat().st_size
    for before, after in zip(_run(pruned), _run(output), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)
    assert not prune.find(skeleton.read(output)).any
    onnx.checker.check_model(onnx.load(output), full_check=True)


def test_a_model_without_zeros_has_nothing_to_cut(bert: Path) -> None:
    assert prune.find(skeleton.read(bert)) == prune.ZeroParts()


def test_single_zeros_are_counted_and_stay(bert: Path, tmp_path: Path) -> None:
    def every_third(name: str, values: Matrix) -> None:
        values.reshape(-1)[::3] = 0

    found = prune.find(skeleton.read(_changed(bert, tmp_path / "model.onnx", every_third)))
    assert not found.any and 0.25 < found.single < 0.4


def _layer(path: Path, activation: str, *, zero_bias: bool, read_twice: bool = False) -> Path:
    """Eight neurons, of which the third has a column of zeros in the first matrix."""
    first, second, bias = weights(4, 8, seed=1), weights(8, 4, seed=2), weights(8, seed=3)
    first[:, 2], bias[2] = 0, 0 if zero_bias else 1
    constants = {"first": first, "second": second, "bias": bias}
    nodes = [
        node("MatMul", ["x", "first"], ["a"]),
        node("Add", ["a", "bias"], ["b"]),
        node(activation, ["b"], ["c"]),
        node("MatMul", ["c", "second"], ["y"]),
    ]
    outputs = [tensor("y", ["batch", 4]), *([tensor("c", ["batch", 8])] if read_twice else [])]
    initializers = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    return save(path, helper.make_graph(nodes, "g", [tensor("x", ["batch", 4])], outputs, initializers))


@pytest.mark.parametrize(
    ("activation", "zero_bias", "read_twice", "neurons"),
    [
        ("Relu", True, False, 1),
        ("Tanh", True, False, 1),
        ("Sigmoid", True, False, 0),  # half of one, whatever comes in
        ("Relu", False, False, 0),  # one, whatever comes in
        ("Relu", True, True, 0),  # somebody else reads the neurons
        ("Softmax", True, False, 0),  # neurons change each other
    ],
)
def test_a_neuron_that_takes_nothing_goes_if_it_gives_nothing(
    activation: str, zero_bias: bool, read_twice: bool, neurons: int, tmp_path: Path
) -> None:
    path = _layer(tmp_path / "model.onnx", activation, zero_bias=zero_bias, read_twice=read_twice)
    found, output = _cut(path, tmp_path)
    assert found.neurons == neurons
    feeds = {"x": np.ones((2, 4), np.float32)}
    before, after = (onnxruntime.InferenceSession(str(one)).run(["y"], feeds)[0] for one in (path, output))
    np.testing.assert_allclose(after, before, atol=1e-6)
