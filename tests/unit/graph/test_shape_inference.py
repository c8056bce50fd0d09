from pathlib import Path
from typing import Any

import pytest
from onnx import helper, parser
from tiny import save
from tiny_onnx import node, tensor

from triton_repo_builder.graph import shape_inference
from triton_repo_builder.read import skeleton


@pytest.mark.parametrize(("rows", "followed"), [("batch", True), (16, True), (2**62, False)])
def test_values_of_shapes_are_followed_unless_a_size_is_a_mistake(
    rows: Any, followed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        shape_inference.shape_inference,
        "infer_shapes",
        lambda model, data_prop=False: asked.append(data_prop) or model,
    )
    graph = helper.make_graph(
        [node("Identity", ["x"], ["y"])], "g", [tensor("x", [rows, 2])], [tensor("y", [rows, 2])]
    )
    shape_inference.output_shapes(skeleton.read(save(tmp_path / "model.onnx", graph)))
    assert asked == [False, True][: 1 + followed]


BRANCH = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,2] X) => (float[N,2] Y)
<bool C = {1}, float[2,2] FITS = {1, 2, 3, 4}, float[3,2] NOT = {1, 2, 3, 4, 5, 6}> {
  Z = If (C) <
    then_branch = a () => (float[N,2] A) { A = Softmax <axis = 5> (X) },
    else_branch = b () => (float[N,2] B) { B = Relu (X) }
  >
  Y = MatMul (X, OTHER)
}
"""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("FITS", []),
        (
            "NOT",
            ["Node () Op (MatMul) [ShapeInferenceError] Incompatible dimensions for matrix multiplication"],
        ),
    ],
)
def test_a_branch_may_never_be_taken(other: str, said: list[str]) -> None:
    model = parser.parse_model(BRANCH.replace("OTHER", other))
    assert list(shape_inference.faults(model)) == said
