"""Nodes that ONNX Runtime refuses, as 1.19 does, and that it takes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper, parser

from triton_repo_builder.base import releases
from triton_repo_builder.model.graph import soundness
from triton_repo_builder.model.read import skeleton


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


def contrib(operator: str, **attributes: object) -> onnx.ModelProto:
    made = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[n,64] x, uint8[64,2,32] q, float[128] s) => (float[n,64] y) {{
          y = com.microsoft.{operator} <K = 64, N = 64, block_size = 32> (x, q, s)
        }}"""
    )
    for name, value in attributes.items():
        made.graph.node[0].attribute.append(helper.make_attribute(name, value))
    return made


@pytest.mark.parametrize(
    ("bits", "release", "refused"), [(4, "24.10", False), (8, "24.10", True), (8, "25.09", False)]
)
def test_a_value_that_came_later(bits: int, release: str, refused: bool, tmp_path: Path) -> None:
    """ONNX Runtime 1.19.2: Only 4b quantization is supported for MatMulNBits op."""
    path = tmp_path / "model.onnx"
    path.write_bytes(contrib("MatMulNBits", bits=bits).SerializeToString())
    said = [*soundness.faults(skeleton.read(path), releases.get(release))]
    assert said == (["MatMulNBits does not support bits = 8"] if refused else [])
    assert (release in soundness.sound_in(skeleton.read(path), [release])) is not refused


def test_an_attribute_that_came_later(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(contrib("GroupQueryAttention", softcap=1.0).SerializeToString())
    said = [*soundness.faults(skeleton.read(path), releases.get("24.10"))]
    assert said == ["Unrecognized attribute: softcap for operator GroupQueryAttention"]
    assert soundness.sound_in(skeleton.read(path), ["24.10", "24.12"]) == ("24.12",)


def test_constants_may_have_the_same_name(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n,2] x) => (float[n,2] y) {
      [same] a = Constant <value = float {1.0}> ()
      [same] b = Constant <value = float {2.0}> ()
      [other] c = Add (a, b)
      [last] y = Add (x, c)
    }"""
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    assert [*soundness.faults(skeleton.read(path), releases.default())] == []
    path.write_bytes(parser.parse_model(text.replace("[other]", "[last]")).SerializeToString())
    (said,) = soundness.faults(skeleton.read(path), releases.default())
    assert "two nodes with same node name (last)" in said
