"""The front where a row of the batch stands for several rows of the model, and the heads of such tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from triton_repo_builder.model.graph import ragged
from triton_repo_builder.model.graph.heads import tokens as heads_tokens

OPSETS = [11, 13, 17, 18, 21]
INPUTS = [("input_ids", 7), ("attention_mask", 7), ("token_type_ids", 6), ("position_ids", 7)]
# Four requests: two segments; one token; two rows, of three segments and of two tokens; no token at all.
TOKENS = [1, 2, 3, -2, 4, 5, 6, 7, -2, 8, -2, 9, 10, 11, 12, -1, -1, -1, -1, -1]
LENGTHS = [6, 1, 6, 6, 1]


def session(text: str, opset: int) -> Any:
    graph = onnx.parser.parse_graph(text)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString())


def answers(run: Any, **feeds: Any) -> dict[str, Any]:
    return dict(zip((output.name for output in run.get_outputs()), run.run(None, feeds), strict=True))


def front(told: str, opset: int) -> dict[str, Any]:
    run = session(ragged.front(INPUTS, pad_id=9, types=True, chunks=told).text, opset)
    tokens = np.array(TOKENS, np.int32)
    lengths = np.array(LENGTHS, np.float32)[:, None]
    return answers(run, trb_tokens=tokens, trb_types=(tokens > 2).astype(np.int32), trb_lengths=lengths)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("told", ["tokens", "rows"])
def test_each_segment_is_a_row_of_the_model(told: str, opset: int) -> None:
    found = front(told, opset)
    assert found["input_ids"].tolist() == [
        [1, 2, 3],
        [4, 5, 9],
        [6, 9, 9],
        [7, 9, 9],
        [8, 9, 9],
        [9, 10, 9],
        [11, 12, 9],
        [9, 9, 9],
    ]
    assert found["attention_mask"].sum(axis=1).tolist() == [3, 2, 1, 1, 1, 2, 2, 0]
    assert found["token_type_ids"].tolist()[:3] == [[0, 0, 1], [1, 1, 0], [1, 0, 0]]
    assert found["position_ids"].tolist()[:2] == [[0, 1, 2], [0, 1, 0]]


@pytest.mark.parametrize("opset", OPSETS)
def test_the_head_is_told_where_each_token_went(opset: int) -> None:
    places = front("tokens", opset)["trb_places"]
    assert places.shape == (5, 6, 2)
    assert places[0].tolist() == [[0, 0], [0, 1], [0, 2], [0, 0], [1, 0], [1, 1]]
    assert [place for place, token in zip(places[2].tolist(), TOKENS[7:13], strict=True) if token >= 0] == [
        [3, 0],
        [4, 0],
        [5, 0],
        [5, 1],
    ]
    assert places[3, :2].tolist() == [[6, 0], [6, 1]]


@pytest.mark.parametrize("opset", OPSETS)
def test_the_head_is_told_which_rows_are_whose(opset: int) -> None:
    places = front("rows", opset)["trb_places"]
    assert places.tolist() == [[0, 1, 1], [2, 2, 2], [3, 4, 5], [6, 6, 6], [7, 7, 7]]


@pytest.mark.parametrize("opset", OPSETS)
def test_span_logits_go_back_to_their_row(opset: int) -> None:
    run = session(heads_tokens.question_answering(), max(opset, 12))
    starts = np.arange(6, dtype=np.float32).reshape(2, 3)
    places = np.array([[[0, 0], [0, 2], [0, 0], [1, 1]]])
    found = answers(run, start_logits=starts, end_logits=-starts, places=places)
    assert found["trb_starts"].tolist() == [[0, 2, 0, 4]]
    assert found["trb_ends"].tolist() == [[0, -2, 0, -4]]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(("contradiction", "entailment"), [(0, 2), (0, -1), (-1, 0)])
def test_two_logits_of_each_hypothesis(contradiction: int, entailment: int, opset: int) -> None:
    run = session(heads_tokens.zero_shot(labels=3, contradiction=contradiction, entailment=entailment), opset)
    logits = np.arange(9, dtype=np.float32).reshape(3, 3)
    (found,) = answers(run, logits=logits, places=np.array([[0, 1], [2, 2]])).values()
    assert found.tolist() == logits[[[0, 1], [2, 2]]][:, :, [contradiction, entailment]].tolist()


@pytest.mark.parametrize("opset", OPSETS)
def test_top_tokens_of_every_mask(opset: int) -> None:
    run = session(heads_tokens.fill_mask(mask_id=7, top_k=3, vocabulary=11), opset)
    logits = np.random.default_rng(0).normal(size=(3, 5, 11)).astype(np.float32)
    ids = np.array([[1, 7, 7, 0, 0], [7, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    found = answers(run, logits=logits, ids=ids)
    assert found["trb_ids"].shape == found["trb_scores"].shape == (3, 2, 3)
    for row, mask, token in ((0, 0, 1), (0, 1, 2), (1, 0, 0)):
        shares = np.exp(logits[row, token]) / np.exp(logits[row, token]).sum()
        order = np.argsort(-shares)[:3]
        assert found["trb_ids"][row, mask].tolist() == order.tolist()
        np.testing.assert_allclose(found["trb_scores"][row, mask], shares[order], rtol=1e-5)
    assert not found["trb_scores"][1, 1].any()
    assert not found["trb_scores"][2].any()


@pytest.mark.parametrize("opset", OPSETS)
def test_no_mask_at_all_is_no_failure(opset: int) -> None:
    run = session(heads_tokens.fill_mask(mask_id=7, top_k=3, vocabulary="V"), opset)
    found = answers(run, logits=np.zeros((2, 5, 11), np.float32), ids=np.zeros((2, 5), np.int64))
    assert found["trb_ids"].tolist() == np.zeros((2, 1, 3)).tolist()


@pytest.mark.parametrize("opset", OPSETS)
def test_shares_of_the_labels_of_each_token(opset: int) -> None:
    logits = np.random.default_rng(1).normal(size=(2, 4, 5)).astype(np.float32)
    (found,) = session(heads_tokens.token_classification(5), opset).run(None, {"logits": logits})
    expected = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
