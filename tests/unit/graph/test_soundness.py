"""Nodes that ONNX Runtime refuses, as 1.19 does, and that it takes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from triton_repo_builder import releases
from triton_repo_builder.graph import soundness
from triton_repo_builder.read import skeleton


def faults(folder: Path, *nodes: onnx.NodeProto, **more: int) -> list[str]:
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "XY"]
    graph = helper.make_graph([*nodes], "g", sides[:1], sides[1:])
    graph.initializer.append(helper.make_tensor("W", TensorProto.INT64, [1], [1]))
    opsets = [helper.make_opsetid("", more.get("opset", 17)), helper.make_opsetid("com.microsoft", 1)]
    file = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
    return [*soundness.faults(skeleton.read(file), releases.default())]


@pytest.mark.parametrize("inputs", [["X", ""], ["", "X"]])
def test_an_input_that_may_not_be_left_out(tmp_path: Path, inputs: list[str]) -> None:
    (fault,) = faults(tmp_path, helper.make_node("Add", inputs, ["Y"], name="n"))
    assert fault.startswith("Node (n)'s input ") and "is marked single but has an empty string" in fault


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Clip", ["X", "", ""], ["Y"]),
        helper.make_node("Dropout", ["X"], ["Y", ""]),
        helper.make_node("Sum", ["X", "X"], ["Y"]),
        helper.make_node("Gather", ["X", "W"], ["Y"]),
        helper.make_node("Gelu", ["X"], ["Y"], domain="com.microsoft"),
        helper.make_node("Concat", ["X", "X"], ["Y"], axis=0),
    ],
    ids=lambda node: node.op_type,
)
def test_nodes_that_it_takes(tmp_path: Path, node: onnx.NodeProto) -> None:
    assert faults(tmp_path, node) == []


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Where", ["X", "X", "X"], ["Y"]), "Type 'tensor(float)' of input parameter (X)"),
        (helper.make_node("Concat", ["X", "W"], ["Y"], axis=0), "Type parameter (T) of Optype (Concat)"),
        (helper.make_node("Shape", ["X"], ["Y"]), "does not match expected type (tensor(int64))"),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)
def test_types_that_an_operator_does_not_take(tmp_path: Path, node: onnx.NodeProto, message: str) -> None:
    (fault,) = faults(tmp_path, node)
    assert message in fault
