"""Sums over tokens: the same to the last bit in any batch, and what they were before."""

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny_onnx as t
from onnx import TensorProto, helper, numpy_helper

from triton_repo_builder.model.graph import token_sums

WIDTH = 24
LENGTHS = (1, 5, 8, 9, 16, 17, 33, 64, 65, 100)


def _model(kind: str, opset: int, *, keepdims: int = 1, axis: int = 1, rank: int = 3) -> onnx.ModelProto:
    as_input = opset >= (13 if kind == "ReduceSum" else 18)
    stated = {} if as_input else {"axes": [axis]}
    node = t.node(kind, ["x", "axes"] if as_input else ["x"], ["y"], keepdims=keepdims, **stated)
    sizes: list[str | int] = ["rows", "tokens", *[WIDTH] * (rank - 2)]
    axes = [numpy_helper.from_array(np.array([axis], np.int64), "axes")] if as_input else []
    answer = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * (rank if keepdims else rank - 1))
    graph = helper.make_graph([node], "g", [t.tensor("x", sizes)], [answer], axes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _run(model: onnx.ModelProto, values: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": values})
    return np.asarray(answer)


@pytest.mark.parametrize(
    ("kind", "opset"), [("ReduceSum", 11), ("ReduceSum", 13), ("ReduceMean", 13), ("ReduceMean", 18)]
)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_sum_is_the_same_whatever_is_beside_it(kind: str, opset: int, keepdims: int) -> None:
    model = _model(kind, opset, keepdims=keepdims)
    before = onnx.ModelProto.FromString(model.SerializeToString())
    token_sums.in_order(model)
    onnx.checker.check_model(model)
    chance = np.random.default_rng(0)
    for length in LENGTHS:
        row = chance.standard_normal((1, length, WIDTH)).astype(np.float32)
        alone = _run(model, row)
        np.testing.assert_allclose(alone, _run(before, row), atol=1e-5)
        for rows, padding in ((2, 0), (5, 0), *(((1, 7), (3, 20)) if kind == "ReduceSum" else ())):
            batch = chance.standard_normal((rows, length + padding, WIDTH)).astype(np.float32)
            batch[-1] = 0
            batch[-1, :length] = row[0]
            assert np.array_equal(_run(model, batch)[-1], alone[0]), (length, rows, padding)


def test_constants_that_nothing_reads_are_gone() -> None:
    model = _model("ReduceSum", 13, keepdims=0)
    token_sums.in_order(model)
    assert {tensor.name for tensor in model.graph.initializer} == {
        f"trb/sums/{name}" for name in ("tokens", "rows", "width", "flat")
    }


@pytest.mark.parametrize(("axis", "rank"), [(2, 3), (-1, 3), (0, 3), (1, 2), (1, 4)])
def test_other_sums_stay(axis: int, rank: int) -> None:
    model = _model("ReduceSum", 13, axis=axis, rank=rank)
    before = model.SerializeToString(deterministic=True)
    token_sums.in_order(model)
    assert model.SerializeToString(deterministic=True) == before


def test_a_sum_from_the_other_end_is_one_over_the_tokens_too() -> None:
    model = _model("ReduceSum", 13, axis=-2)
    token_sums.in_order(model)
    assert "Transpose" in {node.op_type for node in model.graph.node}
