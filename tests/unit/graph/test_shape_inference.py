from pathlib import Path
from typing import Any

import pytest
from onnx import helper
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
