"""The heads of sparse embeddings and of late interaction against the same arithmetic in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper

from triton_repo_builder.model.graph.heads import colbert, sparse

OPSETS = (11, 13, 17, 18, 21)
LOGITS = np.random.default_rng(1).normal(size=(4, 5, 7)).astype(np.float32)
LOGITS[1] = -1  # a row of which nothing is above 0
LOGITS[2, :, 3] = 1e-9  # lost in log(1 + x) of float32, not in log1p
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 0]])
HIDDEN = np.random.default_rng(2).normal(size=(4, 5, 3)).astype(np.float32)
PROJECTION = np.random.default_rng(3).normal(size=(3, 2)).astype(np.float32)
Array = npt.NDArray[Any]


def run(text: str, opset: int, feeds: dict[str, Array]) -> list[Array]:
    model = helper.make_model(
        onnx.parser.parse_graph(text),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8 if opset < 21 else 10,
    )
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    answer: list[Array] = session.run(None, feeds)
    return answer


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("pooling", sparse.POOLINGS)
@pytest.mark.parametrize("twice", [False, True])
def test_sparse(pooling: str, twice: bool, opset: int) -> None:
    text = sparse.head(pooling=pooling, twice=twice, width=7, opset=opset)
    indices, values = run(text, opset, {"logits": LOGITS, "attention_mask": MASK})
    assert (indices.dtype, values.dtype) == (np.int32, np.float32)
    widths = []
    for row in range(4):
        logged = np.log1p(np.maximum(LOGITS[row][MASK[row] == 1].astype(np.float64), 0))
        logged = np.log1p(logged) if twice else logged
        weights = getattr(logged, pooling)(axis=0)
        (places,) = np.nonzero(weights)
        widths.append(len(places))
        np.testing.assert_array_equal(indices[row, : len(places)], places)
        np.testing.assert_allclose(values[row, : len(places)], weights[places], rtol=1e-6)
        assert set(indices[row, len(places) :]) <= {-1}
        assert set(values[row, len(places) :]) <= {0.0}
    assert indices.shape == values.shape == (4, max(widths))
    assert widths[1] == 0
    assert 3 in indices[2]


def test_sparse_of_nothing_is_one_filler() -> None:
    feeds = {"logits": LOGITS, "attention_mask": np.zeros_like(MASK)}
    indices, values = run(sparse.head(pooling="max", twice=False, width=None, opset=17), 17, feeds)
    np.testing.assert_array_equal(indices, np.full((4, 1), -1))
    np.testing.assert_array_equal(values, np.zeros((4, 1)))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("project", [False, True])
def test_late(project: bool, opset: int) -> None:
    ids = np.arange(20).reshape(4, 5) % 6
    kept = np.array([1, 1, 0, 1, 0, 1], np.float32)
    text = colbert.head(
        width=3, out=2 if project else None, project=project, keep=6, expanded=False, opset=opset
    )
    feeds = {"hidden": HIDDEN, "attention_mask": MASK, "input_ids": ids, "kept_tokens": kept}
    vectors, mask = run(text, opset, feeds | ({"projection": PROJECTION} if project else {}))
    expected = HIDDEN @ PROJECTION if project else HIDDEN
    expected = expected / np.linalg.norm(expected, axis=2, keepdims=True)
    counts = MASK * ~np.isin(ids, [2, 4])
    np.testing.assert_array_equal(mask, counts)
    assert mask.dtype == np.int32
    np.testing.assert_allclose(vectors, expected * counts[:, :, None], atol=1e-6)


def test_late_with_expansion_counts_every_vector() -> None:
    text = colbert.head(width=3, out=None, project=False, keep=None, expanded=True, opset=17)
    vectors, mask = run(text, 17, {"hidden": HIDDEN, "attention_mask": MASK})
    np.testing.assert_array_equal(mask, np.ones_like(MASK))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=2), np.ones((4, 5)), atol=1e-6)
