from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from tiny_onnx import node, tensor

from triton_repo_builder.base import releases
from triton_repo_builder.base.releases import Release
from triton_repo_builder.model.graph import reader, shape_inference
from triton_repo_builder.model.read import skeleton

RELEASE = releases.get("24.10")


def shapes(path: Path, release: Release = RELEASE) -> shape_inference.Shapes:
    graph = skeleton.read(path)
    return shape_inference.output_shapes(graph, reader.signature(graph), release)


@pytest.mark.parametrize(("rows", "followed"), [("batch", True), (16, True), (2**62, False)])
def test_values_of_shapes_are_followed_unless_a_size_is_a_mistake(
    rows: Any, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        shape_inference, "_infer", lambda model, data_prop=False: asked.append(data_prop) or model
    )
    graph = helper.make_graph(
        [node("Identity", ["x"], ["y"])], "g", [tensor("x", [rows, 2])], [tensor("y", [rows, 2])]
    )
    shape_inference.infer(helper.make_model(graph))
    assert asked == [False, True][: 1 + followed]


OPENED = """<ir_version: 8, opset_import: ["": 21]>
g (float[n,3,8,8] x) => (float[n,a,b] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[2] r1 = {3, 32}, int64[2] r2 = {1, 2},
 float[2] r3 = {3, 64}> {
  s = Shape (x)
  b = Gather (s, zero)
  NODES
}
"""
RESHAPED = "t = Concat <axis = 0> (b, rest) y = Reshape (x, t)"
SIZES = {
    "product": ("rest = Mul (r1, r2) " + RESHAPED, (3, 64)),
    "cast": ("rest = Cast <to = 7> (r3) " + RESHAPED, (3, 64)),
    "slice": (
        "xx = ReduceSum <keepdims = 0> (x, three) part = Slice (s, one, three) rest = Cast <to = 7> (part) "
        "t = Concat <axis = 0> (b, rest) y = Reshape (xx, t)",
        ("a", "b"),
    ),
}
"""What ONNX Runtime 1.19.2 gives; ONNX's own inference follows the slice, and not the cast."""


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    nodes, sizes = SIZES[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(OPENED.replace("NODES", nodes)).SerializeToString())
    assert shapes(path) == ({"y": ("n", *sizes)}, True)


@pytest.mark.parametrize(
    ("nodes", "old", "new"),
    [
        ('y = Einsum <equation = "nchw->nhc"> (x)', (None, None, None), ("n", 8, 3)),
        ('z = Einsum <equation = "nchw->nhc"> (x) y = Relu (z)', (None, None, None), ("n", 8, 3)),
        (
            "z = ReduceSum <keepdims = 0> (x, three) c = GreaterOrEqual (z, z) y = Cast <to = 1> (c)",
            None,
            ("n", 3, 8),
        ),
    ],
    ids=["rank", "behind", "nothing"],
)
def test_what_an_older_release_does_not_infer_is_open(nodes: str, old: Any, new: Any, tmp_path: Path) -> None:
    """Measured with the wheels of 1.19.2 and 1.27.0."""
    model = parser.parse_model(OPENED.replace("float[n,a,b] y", "float[] y").replace("NODES", nodes))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert shapes(path).sizes == ({} if old is None else {"y": old})
    assert shapes(path, releases.newest()).sizes == {"y": new}


WINDOWS = {
    "kernel_shape = [1, 1], strides = [3, 5]": ((3, 2), (4, 3)),
    "kernel_shape = [2, 2], strides = [5, 4], pads = [0, 0, 1, 1]": ((2, 3), (3, 3)),
    "kernel_shape = [2, 3], dilations = [2, 1], strides = [7, 3], pads = [0, 1, 1, 2]": ((2, 4), (2, 4)),
}


@pytest.mark.parametrize("padding", ["", "VALID", "NOTSET", "SAME_UPPER"])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_that_an_older_release_does_not_count(window: str, padding: str, tmp_path: Path) -> None:
    """Measured with the wheels of 1.19.2 and 1.31.1; in 1.17.3 it is as in the newest."""
    given = f', auto_pad = "{padding}"' if padding else ""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]> g (float[n,3,8,9] x) => (float[n,3,a,b] y) '
        f"{{ y = MaxPool <ceil_mode = 1, {window}{given}> (x) }}"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    old, new = WINDOWS[window]
    assert shapes(path).sizes == {"y": ("n", 3, *old)}
    for release in (releases.newest(), releases.get("24.04"), releases.get("25.03")):
        assert shapes(path, release).sizes == {"y": ("n", 3, *new)}


def test_weights_beside_a_graph_with_hidden_sizes(tmp_path: Path) -> None:
    text = OPENED.replace("NODES", 'z = Einsum <equation = "nchw->nhc"> (x) y = MatMul (z, w)')
    model = parser.parse_model(text)
    weights = numpy_helper.from_array(np.ones((3, 512), np.float32), "w")
    model.graph.initializer.append(weights)
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert shapes(path) == ({"y": ("n", "a", 512)}, True)
    path.write_bytes(model.SerializeToString())
    assert shapes(path) == ({"y": ("n", "a", 512)}, True)


def test_a_graph_that_cannot_be_loaded_here(tmp_path: Path) -> None:
    text = OPENED.replace("NODES", "z = Relu (x) w = NoSuchOp (z) y = ReduceSum <keepdims = 0> (z, three)")
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    assert shapes(path) == ({"y": ("n", 3, 8)}, False)


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
    assert list(shape_inference.faults(model, "model.onnx")) == said
