"""A head composed after a model gives what the head's arithmetic makes of the model's own output."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import tiny
import tiny_onnx as t
from onnx import helper

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.graph import compose, reader
from triton_repo_builder.model.graph.heads import pooling
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import skeleton

IDS = np.array([[2, 5, 9, 3], [2, 7, 3, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
TYPES = np.array([[0, 0, 1, 1], [0, 0, 0, 0]])
RELEASE = releases.get("24.10")
Answers = dict[str, npt.NDArray[Any]]


def run(path: Path, feeds: Answers) -> Answers:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    types = {value.name: value.type for value in session.get_inputs()}
    cast = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    taken = {name: array.astype(cast[types[name]]) for name, array in feeds.items() if name in types}
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, taken), strict=True))


def served(path: Path, head: Head | None, release: Any = RELEASE) -> Path:
    """As built: the composed model and the user's file beside it (onnx.checker refuses hard links)."""
    folder = path.parent / "served"
    folder.mkdir()
    content = compose.compose(skeleton.read(path), weights="weights.onnx", head=head, release=release)
    (folder / "model.onnx").write_bytes(content)
    shutil.copyfile(path, folder / "weights.onnx")
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    return folder / "model.onnx"


def mean(output: str = "last_hidden_state", opset: int = 17) -> Head:
    text = pooling.embedding(pooling="mean", normalise=False, width=tiny.WIDTH, opset=opset)
    return Head(text=text, bind={"hidden": output, "attention_mask": "attention_mask"})


def check_mean(
    path: Path, output: str = "last_hidden_state", tolerance: float = 1e-6, **options: Any
) -> Answers:
    feeds = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}
    before = path.read_bytes()
    hidden = run(path, feeds)[output].astype(np.float64)
    answer = run(served(path, mean(output, **options)), feeds)
    weights = MASK[..., None]
    expected = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    np.testing.assert_allclose(answer["embedding"], expected, atol=tolerance)
    assert answer["embedding"].dtype == np.float32
    assert path.read_bytes() == before
    return answer


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
def test_every_operator_set(opset: int, tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", opset=opset, ir_version=8 if opset < 21 else 10)
    assert list(check_mean(path, opset=opset)) == ["embedding"]


@pytest.mark.parametrize(
    "options",
    [
        {"ids": t.INT32},
        {"types": False},
        {"mask": "none"},
        {"mask": "none", "ids": t.INT32},
        {"batch": 2, "length": 4},
    ],
)
def test_other_models(options: dict[str, Any], tmp_path: Path) -> None:
    check_mean(tiny.text_model(tmp_path / "m.onnx", **options))


def test_before_ir_4_initializers_are_inputs(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", ir_version=3, opset=11)
    model = onnx.load(path)
    for weight in model.graph.initializer:
        model.graph.input.append(t.tensor(weight.name, weight.dims, weight.data_type))
    path.write_bytes(model.SerializeToString())
    check_mean(path, opset=11)


def test_half_precision_is_pooled_in_single(tmp_path: Path) -> None:
    check_mean(tiny.text_model(tmp_path / "m.onnx", dtype=t.FP16), tolerance=1e-3)


def test_external_data_stays_where_it_is(tmp_path: Path) -> None:
    path = tiny.externalise(tiny.text_model(tmp_path / "m.onnx"), "data.bin")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "data.bin").hardlink_to(tmp_path / "data.bin")
    feeds = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}
    content = compose.compose(skeleton.read(path), weights="weights.onnx", head=mean(), release=RELEASE)
    (tmp_path / "kept" / "model.onnx").write_bytes(content)
    assert run(tmp_path / "kept" / "model.onnx", feeds)["embedding"].shape == (2, tiny.WIDTH)


@pytest.mark.parametrize("mine", ["words", "context", "table", "hidden", "mask_row"])
def test_an_inner_tensor_called_like_our_output(mine: str, tmp_path: Path) -> None:
    check_mean(tiny.text_model(tmp_path / "m.onnx", names=[(mine, "embedding")]))


def test_an_output_called_like_our_output(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", output="embedding")
    check_mean(path, "embedding")


def test_a_mask_made_inside_is_not_the_mask_that_is_sent(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", mask="inner")
    check_mean(path)
    names = [
        value.name
        for value in onnx.load(tmp_path / "served" / "model.onnx", load_external_data=False).graph.input
    ]
    assert names == ["input_ids", "token_type_ids", "attention_mask"]


def test_a_model_that_we_composed_before(tmp_path: Path) -> None:
    first = served(tiny.text_model(tmp_path / "m.onnx"), mean())
    text = pooling.embedding(pooling=None, normalise=True, width=tiny.WIDTH, opset=17)
    head = Head(text=text, bind={"hidden": "embedding"})
    content = compose.compose(skeleton.read(first), weights="weights_1.onnx", head=head, release=RELEASE)
    second = first.with_name("second.onnx")
    second.write_bytes(content)
    feeds = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}
    rows = run(first, feeds)["embedding"]
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(run(second, feeds)["embedding"], expected, atol=1e-6)


def test_an_input_called_like_our_output_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [t.node("Identity", ["scores"], ["Y"])],
        "g",
        [t.tensor("scores", ["n", 2])],
        [t.tensor("Y", ["n", 2])],
    )
    path = tiny.save(tmp_path / "m.onnx", graph)
    head = Head(
        text=pooling.classification(activation="softmax", labels=2),
        bind={"logits": "Y"},
        strings=(("label_names", ("a", "b")),),
    )
    with pytest.raises(TrbError) as caught:
        compose.compose(skeleton.read(path), weights="w", head=head, release=RELEASE)
    assert caught.value.code == Code.UNSUPPORTED_MODEL
    assert caught.value.message == "the model's input 'scores' has the name of an output that trb adds"


@pytest.mark.parametrize("inner", ["scores", "label", "logits32", "user"])
def test_names_in_both_branches_of_a_condition(inner: str, tmp_path: Path) -> None:
    """The branches see outer tensors, and have inner ones called like ours."""

    def branch(operator: str) -> Any:
        nodes = [t.node(operator, ["X"], [inner]), t.node("Add", [inner, "K"], [f"{inner}_out"])]
        return helper.make_graph(
            nodes, "b", [], [t.tensor(f"{inner}_out", None)], value_info=[t.tensor(inner, ["n", 3])]
        )

    nodes = [
        t.node("ReduceSum", ["X"], ["sum"], keepdims=0),
        t.node("Greater", ["sum", "zero"], ["positive"]),
        t.node("If", ["positive"], ["score"], then_branch=branch("Neg"), else_branch=branch("Abs")),
        t.node("Identity", ["score"], ["logits"]),
    ]
    constants = [t.constant("zero", t.FLOAT, [], [0.0]), t.constant("K", t.FLOAT, [3], [0.5, 0.1, 0.0])]
    path = tmp_path / "m.onnx"
    path.write_bytes(
        t.model(nodes, [t.tensor("X", ["n", 3])], [t.tensor("logits", ["n", 3])], initializers=constants)
    )
    head = Head(
        text=pooling.classification(activation="none", labels=3),
        bind={"logits": "logits"},
        strings=(("label_names", ("a", "b", "ü 😀")),),
    )
    made = served(path, head)
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    for sign in (1, -1):
        rows = np.array([[1, 2, 4], [3, 1, 1]], np.float32) * sign
        label, score, scores = session.run(["label", "score", "scores"], {"X": rows})
        expected = (-rows if rows.sum() > 0 else np.abs(rows)) + np.array([0.5, 0.1, 0.0], np.float32)
        np.testing.assert_allclose(scores, expected)
        np.testing.assert_allclose(score[:, 0], expected.max(axis=1))
        np.testing.assert_array_equal(label[:, 0], np.array(["a", "b", "ü 😀"])[expected.argmax(axis=1)])


def test_an_operator_set_that_is_too_old(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx", opset=10, ir_version=6)
    with pytest.raises(TrbError) as caught:
        compose.compose(skeleton.read(path), weights="w", head=mean(), release=RELEASE)
    assert caught.value.code == Code.UNSUPPORTED_MODEL
    assert "opset 10 is too old" in caught.value.message


@pytest.mark.parametrize(("version", "expected"), [(8, 8), (10, 10), (11, 10), (13, 10)])
def test_the_ir_version_is_lowered_to_what_the_release_knows(
    version: int, expected: int, tmp_path: Path
) -> None:
    path = tiny.tensor_model(tmp_path / "m.onnx", ir_version=version)
    made = served(path, None)
    assert reader.read_signature(made).ir_version == expected
    rows = tiny.weights(2, 32).astype(np.float32)
    path.write_bytes(onnx.load(tiny.tensor_model(tmp_path / "m8.onnx")).SerializeToString())
    session = onnxruntime.InferenceSession(str(made), providers=["CPUExecutionProvider"])
    plain = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"X": rows})[0], plain.run(None, {"X": rows})[0])


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tiny.text_model(tmp_path / "m.onnx")
    made = [compose.compose(skeleton.read(path), weights="w", head=mean(), release=RELEASE) for _ in range(2)]
    assert made[0] == made[1]
