"""The user's tensors may be called like any of ours: what is composed loads, and answers as the original."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
import tiny_onnx as t
from onnx import helper

from triton_repo_builder.base import releases
from triton_repo_builder.model.graph import (
    compose,
    names,
    ragged,
    walk,
)
from triton_repo_builder.model.graph.heads import pooling
from triton_repo_builder.model.graph.parts import Head, Rows
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.repository import tensor_names

ROWS = [[2, 5, 9, 3], [2, 7, 3], [4]]
TYPES = [[0, 0, 1, 1], [0, 1, 1], [0]]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OURS = (*tensor_names.FRONT, "embedding", "trb/front/rows", "trb/hidden32", "trb/user/trb_tokens", "TEXT")


def check(path: Path, output: str = "last_hidden_state") -> onnx.ModelProto:
    """``composed`` for each way of running rows; the model whose front pads."""
    return [composed(path, output, rows) for rows in (Rows.SINGLE, Rows.GROUPS, Rows.PADDED)][-1]


def composed(path: Path, output: str, rows: Rows) -> onnx.ModelProto:
    """Composes front and head, and compares its answers to rows of any length with the original's to each."""
    opset = onnx.load(path).opset_import[0].version
    text = pooling.embedding(pooling="mean", normalise=False, width=tiny.WIDTH, opset=opset)
    head = Head(text=text, bind={"hidden": output, "attention_mask": "attention_mask"})
    front = ragged.front([(name, 7) for name in INPUTS], pad_id=0, types=True, rows=rows)
    release = releases.default()
    folder = path.parent / f"served_{rows.value}"
    folder.mkdir()
    content = compose.compose(
        skeleton.read(path), weights="weights.onnx", head=head, release=release, front=front
    )
    (folder / "model.onnx").write_bytes(content)
    shutil.copyfile(path, folder / "weights.onnx")
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    served = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    assert [item.name for item in served.get_inputs()] == [
        tensor_names.TOKENS,
        tensor_names.LENGTHS,
        tensor_names.TYPES,
    ]
    given = {
        tensor_names.TOKENS: np.array([token for row in ROWS for token in row], np.int32),
        tensor_names.TYPES: np.array([kind for row in TYPES for kind in row], np.int32),
        tensor_names.LENGTHS: np.array([[len(row)] for row in ROWS], np.float32),
    }
    found = served.run(["embedding"], given)[0]
    original = onnxruntime.InferenceSession(str(path))
    for number, (row, types) in enumerate(zip(ROWS, TYPES, strict=True)):
        alone = dict(zip(INPUTS, np.array([[row], [[1] * len(row)], [types]]), strict=True))
        hidden = original.run([output], alone)[0]
        np.testing.assert_allclose(found[number], hidden.mean(axis=1)[0], atol=1e-6)
    return onnx.load(folder / "model.onnx", load_external_data=False)


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("mine", ["words", "table", "mask_row"])
def test_an_inner_tensor_called_like_one_of_ours(mine: str, ours: str, tmp_path: Path) -> None:
    check(tiny.text_model(tmp_path / "m.onnx", names=[(mine, ours)]))


@pytest.mark.parametrize("ours", [*ragged.GROUP_SHARED, "group_end", "longest", "zero"])
def test_an_output_called_like_one_of_ours(ours: str, tmp_path: Path) -> None:
    check(tiny.text_model(tmp_path / "m.onnx", output=ours), ours)


def test_all_names_at_once(tmp_path: Path) -> None:
    mine = ("words", "table", "context", "mixed", "kinds", "total")
    renamed = tuple(zip(mine, (*tensor_names.FRONT, "embedding", "trb2/x"), strict=True))
    check(tiny.text_model(tmp_path / "m.onnx", names=renamed))


@pytest.mark.parametrize("ours", [*tensor_names.FRONT, "embedding"])
def test_before_ir_4_an_initializer_that_is_an_input(ours: str, tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", ir_version=3, opset=11, names=[("table", ours)])
    model = onnx.load(path)
    for weight in model.graph.initializer:
        model.graph.input.append(t.tensor(weight.name, weight.dims, weight.data_type))
    path.write_bytes(model.SerializeToString())
    check(path)


@pytest.mark.parametrize("ours", [*tensor_names.FRONT, "embedding", "trb/front/rows"])
def test_names_within_branches_and_loops(ours: str, tmp_path: Path) -> None:
    """The user's last node becomes a condition in a loop, each with inner tensors called like ours."""
    path = tiny.text_model(tmp_path / "m.onnx")
    model = onnx.load(path)
    last = model.graph.node.pop()

    def branch(operator: str) -> Any:
        nodes = [
            t.node("Cast", ["attention_mask"], [f"{ours}_mask"], to=t.FLOAT),
            t.node("ReduceMax", [f"{ours}_mask"], ["trb/one"], keepdims=0),
            t.node(operator, ["carried"], [ours]),
            t.node("Mul", [ours, "trb/one"], [f"{ours}_out"]),
        ]
        return helper.make_graph(nodes, "b", [], [t.tensor(f"{ours}_out", None)])

    body = helper.make_graph(
        [
            t.node("Identity", ["go"], ["trb/go"]),
            t.node("If", ["go"], ["next"], then_branch=branch("Neg"), else_branch=branch("Abs")),
        ],
        "body",
        [t.tensor("nth", [], t.INT64), t.tensor("go", [], t.BOOL), t.tensor("carried", None)],
        [t.tensor("trb/go", [], t.BOOL), t.tensor("next", None)],
    )
    model.graph.initializer.extend(
        [t.constant("times", t.INT64, [], [3]), t.constant("yes", t.BOOL, [], [True])]
    )
    model.graph.node.append(t.node("Loop", ["times", "yes", last.input[0]], last.output, body=body))
    path.write_bytes(model.SerializeToString())
    check(path)


def test_what_describes_a_renamed_tensor_is_renamed(tmp_path: Path) -> None:
    model = onnx.load(tiny.text_model(tmp_path / "m.onnx"))
    values = t.constant("scale", t.FLOAT, [1], [1.0])
    sparse = helper.make_sparse_tensor(values, t.constant("", t.INT64, [1], [0]), [4])
    model.graph.sparse_initializer.append(sparse)
    noted = onnx.TensorAnnotation(tensor_name="words")
    noted.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    model.graph.quantization_annotation.append(noted)
    moved = names.make_room(model.graph, ["words", "scale"])
    assert moved == {"words": "trb/user/words", "scale": "trb/user/scale"}
    annotation = model.graph.quantization_annotation[0]
    assert annotation.tensor_name == "trb/user/words"
    assert annotation.quant_parameter_tensor_names[0].value == "trb/user/scale"
    assert model.graph.sparse_initializer[0].values.name == "trb/user/scale"
    assert names.inputs(model.graph) == set(INPUTS)
    assert names.prefix(model.graph) == "trb2/"


def test_nothing_is_renamed_without_need(tmp_path: Path) -> None:
    made = check(tiny.text_model(tmp_path / "m.onnx"))
    written = {name for graph in walk.graphs(made.graph) for node in graph.node for name in node.output}
    assert {"words", "hidden", "last_hidden_state"} <= written
    assert not [name for name in written if "user/" in name]


@pytest.mark.parametrize("rows", [1, "batch"])
def test_the_heads_outputs_have_as_many_rows_as_the_graph_says(rows: int | str, tmp_path: Path) -> None:
    """The inputs are open, and what the graph said of its outputs counts although they are none any more."""
    path = tiny.text_model(tmp_path / "m.onnx", output="logits")
    model = onnx.load(path)
    model.graph.output[0].CopyFrom(t.tensor("logits", [rows, 3]))
    path.write_bytes(model.SerializeToString())
    text = pooling.classification(activation="softmax", labels=3)
    head = Head(text=text, bind={"logits": "logits"}, strings=(("label_names", ("a", "b", "c")),))
    graph = skeleton.read(path)
    content = compose.compose(graph, weights="m.onnx", head=head, release=releases.default())
    (tmp_path / "served.onnx").write_bytes(content)
    served = onnxruntime.InferenceSession(str(tmp_path / "served.onnx"))
    first = {output.shape[0] for output in served.get_outputs()}
    assert first == {1} if rows == 1 else all(isinstance(size, str) for size in first)
