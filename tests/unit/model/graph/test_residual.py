"""Shapes of residual sums, and the kernel that ONNX Runtime makes of a sum whose terms have them."""

from pathlib import Path

import onnx
import onnxruntime
import pytest
import tiny
import tiny_onnx as t
from onnx import helper, numpy_helper

from triton_repo_builder.base import releases
from triton_repo_builder.model.graph import compose, ragged, residual, walk
from triton_repo_builder.model.graph.parts import Rows
from triton_repo_builder.model.read import skeleton

WIDE = 16
FOLLOW = ["trb/batch", "trb/sequence", WIDE]


def _layer(*, split: bool = True, bias_first: bool = False, width: int = WIDE) -> onnx.ModelProto:
    """y = LayerNorm(x + (f(x) + bias)), x = embedding of input_ids; f goes through two heads if ``split``."""
    size, twice, bias = t.INT64, ["sizes"], ["bias", "made"] if bias_first else ["made", "bias"]
    f = [t.node("MatMul", ["x", "matrix"], ["made"])]
    if split:
        f = [
            t.node("MatMul", ["x", "matrix"], ["wide"]),
            t.node("Shape", ["x"], ["shape"]),
            t.node("Gather", ["shape", "zero"], ["rows"]),
            t.node("Gather", ["shape", "one"], ["length"]),
            t.node("Unsqueeze", ["rows", "axes"], ["rows1"]),
            t.node("Unsqueeze", ["length", "axes"], ["length1"]),
            t.node("Concat", ["rows1", "length1", "two", "half"], ["by_head"], axis=0),
            t.node("Reshape", ["wide", "by_head"], ["heads"]),
            t.node("Concat", ["rows1", "length1", "width"], twice, axis=0),
            t.node("Reshape", ["heads", *twice], ["made"]),
        ]
    nodes = [
        t.node("Gather", ["table", "input_ids"], ["x"]),
        *f,
        t.node("Add", bias, ["biased"]),
        t.node("Add", ["biased", "x"], ["sum"]),
        t.node("LayerNormalization", ["sum", "scale", "shift"], ["y"]),
    ]
    floats = {
        "table": tiny.weights(64, WIDE, seed=1),
        "matrix": tiny.weights(WIDE, width, seed=2),
        "bias": tiny.weights(width, seed=3),
        "scale": tiny.weights(WIDE, seed=4),
        "shift": tiny.weights(WIDE, seed=5),
    }
    whole = {"zero": ([], [0]), "one": ([], [1]), "axes": ([1], [0]), "two": ([1], [2])}
    whole |= {"half": ([1], [WIDE // 2]), "width": ([1], [WIDE])}
    initializers = [numpy_helper.from_array(value, name) for name, value in floats.items()]
    initializers += [helper.make_tensor(name, size, dims, data) for name, (dims, data) in whole.items()]
    rows = ["batch", "sequence"]
    inputs = [t.tensor("input_ids", rows, size), t.tensor("attention_mask", rows, size)]
    nodes.append(t.node("Cast", ["attention_mask"], ["mask"], to=t.FLOAT))
    nodes += [t.node("Unsqueeze", ["mask", "last"], ["mask1"]), t.node("Mul", ["y", "mask1"], ["z"])]
    initializers.append(helper.make_tensor("last", size, [1], [2]))
    graph = helper.make_graph(nodes, "g", inputs, [t.tensor("z", [*rows, WIDE])], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _stated(model: onnx.ModelProto) -> dict[str, list[str | int]]:
    residual.state(model)
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.value_info
    }


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("bias_first", [True, False])
def test_both_terms_and_what_a_bias_is_added_to_have_one_shape(split: bool, bias_first: bool) -> None:
    stated = _stated(_layer(split=split, bias_first=bias_first))
    assert {name: stated[name] for name in ("x", "biased", "made")} == dict.fromkeys(
        ("x", "biased", "made"), FOLLOW
    )


def test_names_that_an_exporter_gave_each_size_do_not_stand_in_the_way() -> None:
    model = _layer()
    for name in ("x", "biased"):
        shape = [f"{name}_dim_0", f"{name}_dim_1", WIDE]
        model.graph.value_info.append(helper.make_tensor_value_info(name, t.FLOAT, shape))
    assert _stated(model)["biased"] == FOLLOW


def test_a_sum_that_broadcasts_is_left_alone() -> None:
    assert _stated(_layer(split=False, width=1)) == {}
    model = _layer(split=False)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(tiny.weights(64, 1), "table"))
    assert _stated(model) == {}


def test_a_model_that_onnx_cannot_follow_is_left_alone() -> None:
    model = _layer()
    before = model.SerializeToString(deterministic=True)
    for node in model.graph.node:
        if node.op_type == "MatMul":
            node.domain = "nobody"
    assert _stated(model) == {}
    model = _layer()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert _stated(model) == {}
    assert model.SerializeToString(deterministic=True) != before


def test_onnxruntime_makes_one_kernel_of_it_inside_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    onnx.save(_layer(), path)
    front = ragged.front([("input_ids", 7), ("attention_mask", 7)], pad_id=0, types=False, rows=Rows.GROUPS)
    read = skeleton.read(path)
    content = compose.compose(read, weights=path.name, head=None, release=releases.default(), front=front)
    (tmp_path / "model.onnx").write_bytes(content)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    served = str(tmp_path / "model.onnx")
    onnxruntime.InferenceSession(served, options, providers=["CPUExecutionProvider"])
    graphs = walk.graphs(onnx.load(tmp_path / "optimised.onnx").graph)
    fused = [node for one in graphs for node in one.node if node.op_type == "SkipLayerNormalization"]
    assert len(fused) == 1 and len(fused[0].input) == 5, "the sum, and the bias before it"


def test_each_release_has_an_onnxruntime_whose_kernel_is_the_faster() -> None:
    versions = [release.onnxruntime.split(".")[:2] for release in releases.load().values()]
    assert max((int(major), int(minor)) for major, minor in versions) < (1, 30), (
        "from 1.30 on its kernel is the slower one: measure the new release's, then state shapes by release"
    )
