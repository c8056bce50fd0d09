"""Each head against the same arithmetic in numpy, at the operator sets at which operators changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from triton_repo_builder.endpoint.tasks import embedding
from triton_repo_builder.model.graph.heads import pooling as heads_pooling

OPSETS = (11, 13, 17, 18, 21)
HIDDEN = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 0]])
Array = npt.NDArray[Any]


def session(text: str, opset: int) -> Any:
    graph = onnx.parser.parse_graph(text)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 21 else 10
    )
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def by_hand(hidden: Array, mask: Array, pooling: str, skip: int = 0) -> Any:
    """One row, in plain loops."""
    tokens = [vector.astype(np.float64) for vector, seen in zip(hidden, mask, strict=True) if seen][skip:]
    if not tokens:
        return np.zeros(hidden.shape[1])
    if pooling == "cls":
        return tokens[0]
    if pooling == "lasttoken":
        return tokens[-1]
    if pooling == "max":
        return np.max(tokens, axis=0)
    if pooling == "weightedmean":
        numbers = range(skip + 1, skip + len(tokens) + 1)
        return sum(n * t for n, t in zip(numbers, tokens, strict=True)) / sum(numbers)
    return sum(tokens) / (len(tokens) if pooling == "mean" else np.sqrt(len(tokens)))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("pooling", heads_pooling.POOLINGS)
def test_pooling(pooling: str, opset: int) -> None:
    text = heads_pooling.embedding(pooling=pooling, normalise=False, width=3, opset=opset)
    (got,) = session(text, opset).run(None, {"hidden": HIDDEN, "attention_mask": MASK})
    expected = [by_hand(h, m, pooling) for h, m in zip(HIDDEN, MASK, strict=True)]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(
        [embedding._pool(h, m, pooling) for h, m in zip(HIDDEN, MASK, strict=True)], expected
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("width", [3, None])
@pytest.mark.parametrize("pooling", ["+".join(heads_pooling.POOLINGS), "max+mean", "cls+cls"])
def test_several_poolings_side_by_side(pooling: str, width: int | None, opset: int) -> None:
    text = heads_pooling.embedding(pooling=pooling, normalise=False, width=width, opset=opset)
    (got,) = session(text, opset).run(None, {"hidden": HIDDEN, "attention_mask": MASK})
    modes = pooling.split("+")
    expected = [
        np.concatenate([by_hand(h, m, mode) for mode in modes]) for h, m in zip(HIDDEN, MASK, strict=True)
    ]
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("skip", [1, 3])
@pytest.mark.parametrize("pooling", heads_pooling.POOLINGS)
def test_a_prompt_that_is_not_pooled(pooling: str, skip: int, opset: int) -> None:
    """Rows that are all prompt give zeros, as a row without tokens does."""
    text = heads_pooling.embedding(pooling=pooling, normalise=False, width=3, opset=opset, skip=skip)
    (got,) = session(text, opset).run(None, {"hidden": HIDDEN, "attention_mask": MASK})
    expected = [by_hand(h, m, pooling, skip) for h, m in zip(HIDDEN, MASK, strict=True)]
    np.testing.assert_allclose(got, expected, atol=1e-6)
    recorded = [embedding._pool(h, m, pooling, skip) for h, m in zip(HIDDEN, MASK, strict=True)]
    np.testing.assert_allclose(recorded, expected)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("pooling", [None, "mean"])
def test_the_first_values_of_an_embedding(pooling: str | None, normalise: bool, opset: int) -> None:
    feeds = {"hidden": HIDDEN[:, 0]} if pooling is None else {"hidden": HIDDEN, "attention_mask": MASK}
    whole, cut = (
        session(
            heads_pooling.embedding(pooling=pooling, normalise=normalise, width=3, opset=opset, keep=keep),
            opset,
        ).run(None, feeds)[0]
        for keep in (None, 2)
    )
    assert cut.shape == (4, 2)
    np.testing.assert_array_equal(cut, whole[:, :2])


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("pooling", heads_pooling.POOLINGS)
def test_a_row_without_tokens_gives_zeros(pooling: str, normalise: bool) -> None:
    text = heads_pooling.embedding(pooling=pooling, normalise=normalise, width=3, opset=17)
    (got,) = session(text, 17).run(None, {"hidden": HIDDEN, "attention_mask": np.zeros_like(MASK)})
    np.testing.assert_array_equal(got, np.zeros((4, 3)))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("pooling", [None, "mean", "max"])
def test_normalised_vectors_have_length_one(pooling: str | None, opset: int) -> None:
    text = heads_pooling.embedding(pooling=pooling, normalise=True, width=None, opset=opset)
    feeds = {"hidden": HIDDEN[:, 0] if pooling is None else HIDDEN, "attention_mask": MASK}
    if pooling is None:
        del feeds["attention_mask"]
    (got,) = session(text, opset).run(None, feeds)
    plain = [
        HIDDEN[:, 0],
        *([by_hand(h, m, pooling) for h, m in zip(HIDDEN, MASK, strict=True)] if pooling else []),
    ]
    rows = np.array(plain[1:]) if pooling else plain[0]
    np.testing.assert_allclose(got, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-6)


def test_a_vector_of_zeros_stays_zeros() -> None:
    text = heads_pooling.embedding(pooling=None, normalise=True, width=3, opset=17)
    (got,) = session(text, 17).run(None, {"hidden": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(got, np.zeros((2, 3)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_padding_changes_nothing(data: st.DataObject) -> None:
    pooling = data.draw(st.sampled_from(heads_pooling.POOLINGS))
    length, padding = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 6))
    hidden = np.random.default_rng(length).normal(size=(1, length + padding, 3)).astype(np.float32)
    mask = np.array([[1] * length + [0] * padding])
    run = _sessions[pooling].run
    (padded,) = run(None, {"hidden": hidden, "attention_mask": mask})
    (alone,) = run(None, {"hidden": hidden[:, :length], "attention_mask": mask[:, :length]})
    np.testing.assert_allclose(padded, alone, atol=1e-6)


_sessions = {
    pooling: session(heads_pooling.embedding(pooling=pooling, normalise=False, width=3, opset=17), 17)
    for pooling in heads_pooling.POOLINGS
}

LOGITS = np.array([[1.0, 3.0, -2.0], [0.0, 0.0, 0.0], [200.0, -200.0, 199.0]], np.float32)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("activation", heads_pooling.ACTIVATIONS)
def test_classification(activation: str, opset: int) -> None:
    text = heads_pooling.classification(activation=activation, labels=3)
    names = np.array(["no", "yes", "perhaps 😀"], dtype=object)
    label, score, scores = session(text, opset).run(None, {"logits": LOGITS, "label_names": names})
    wide = LOGITS.astype(np.float64)
    expected = {
        "softmax": np.exp(wide) / np.exp(wide).sum(axis=1, keepdims=True),
        "sigmoid": 1 / (1 + np.exp(-wide)),
        "none": wide,
    }[activation]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_array_equal(label, [["yes"], ["no"], ["no"]])
    np.testing.assert_allclose(score[:, 0], expected.max(axis=1), atol=1e-6)


@pytest.mark.parametrize("activation", heads_pooling.ACTIVATIONS)
def test_one_label_has_a_name_too(activation: str) -> None:
    run = session(heads_pooling.classification(activation=activation, labels=1), 17)
    feeds = {"logits": np.array([[0.0], [3.0]], np.float32), "label_names": np.array(["only"], dtype=object)}
    label, score, scores = run.run(None, feeds)
    assert label.tolist() == [["only"]] * 2
    np.testing.assert_array_equal(score, scores)
    expected = {"sigmoid": [0.5, 0.952574], "softmax": [1, 1], "none": [0, 3]}[activation]
    np.testing.assert_allclose(scores[:, 0], expected, rtol=1e-5)


@pytest.mark.parametrize(("activation", "expected"), [("sigmoid", 0.952574), ("none", 3.0)])
def test_a_cross_encoder_has_one_score(activation: str, expected: float) -> None:
    (score,) = session(heads_pooling.rerank(activation=activation), 11).run(
        None, {"logits": np.array([[3.0]], np.float32)}
    )
    assert score.tolist() == [[pytest.approx(expected, rel=1e-5)]]
