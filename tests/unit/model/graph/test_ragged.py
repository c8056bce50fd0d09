"""The front gives the user's graph what padding by hand would, and the answers stay those of the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from triton_repo_builder.base import releases
from triton_repo_builder.model.graph import compose, ragged
from triton_repo_builder.model.graph.heads import pooling as heads_pooling
from triton_repo_builder.model.graph.parts import Head, Rows
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.repository import tensor_names

INT32, INT64 = TensorProto.INT32, TensorProto.INT64
WANTED = [("input_ids", INT64), ("attention_mask", INT64), ("token_type_ids", INT32), ("position_ids", INT64)]


def session(
    opset: int = 17,
    *,
    pad_id: int = 1,
    types: bool = False,
    wanted: Any = WANTED,
    positions_from_pad: bool = False,
) -> Any:
    front = ragged.front(wanted, pad_id=pad_id, types=types, positions_from_pad=positions_from_pad)
    graph = onnx.parser.parse_graph(front.text)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return onnxruntime.InferenceSession(model.SerializeToString())


def feed(rows: list[list[int]], kinds: list[list[int]] | None = None) -> dict[str, Any]:
    """Rows as Triton hands them over: end to end, with one length each."""
    values: dict[str, Any] = {
        tensor_names.TOKENS: np.array([token for row in rows for token in row], np.int32),
        tensor_names.LENGTHS: np.array([[len(row)] for row in rows], np.float32),
    }
    if kinds is not None:
        values[tensor_names.TYPES] = np.array([kind for row in kinds for kind in row], np.int32)
    return values


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 18, 21])
def test_rows_of_any_length(opset: int) -> None:
    # The second row is of a request of several rows, and ends with the filler.
    ids, mask, types, positions = session(opset).run(None, feed([[5, 6, 7], [8, -1], [9]]))
    assert ids.tolist() == [[5, 6, 7], [8, 1, 1], [9, 1, 1]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert types.tolist() == [[0, 0, 0]] * 3
    assert positions.tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 0]]
    assert [array.dtype for array in (ids, mask, types, positions)] == [
        np.int64,
        np.int64,
        np.int32,
        np.int64,
    ]


def test_positions_that_count_from_the_pad_id() -> None:
    """As transformers' create_position_ids_from_input_ids: a pad token inside a text has no position."""
    *_, positions = session(17, positions_from_pad=True).run(None, feed([[5, 1, 7], [8, -1], [9, 1]]))
    assert positions.tolist() == [[2, 1, 3], [2, 1, 1], [2, 1, 1]]


def test_types_that_are_given() -> None:
    values = feed([[5, 6, 7], [8, -1]], [[0, 1, 1], [1, 0]])
    types = session(types=True).run(["token_type_ids"], values)[0]
    assert types.tolist() == [[0, 1, 1], [1, 0, 0]]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40), min_size=1, max_size=12))
def test_front_is_padding_by_hand(rows: list[list[int]]) -> None:
    ids, mask = RUNNER.run(["input_ids", "attention_mask"], feed(rows))
    longest = max(map(len, rows))
    assert ids.tolist() == [row + [1] * (longest - len(row)) for row in rows]
    assert mask.tolist() == [[1] * len(row) + [0] * (longest - len(row)) for row in rows]


RUNNER = session()


@pytest.mark.parametrize("opset", [11, 17, 21])
@pytest.mark.parametrize("pooling", heads_pooling.POOLINGS)
@pytest.mark.parametrize("ids", [INT32, INT64])
@pytest.mark.parametrize("rows", [rows for rows in Rows if rows is not Rows.PACKED])
def test_answers_are_those_of_the_original_graph(
    tmp_path: Path, opset: int, pooling: str, ids: int, rows: Rows
) -> None:
    path = tiny.text_model(tmp_path / "model.onnx", opset=opset, ids=ids, ir_version=8, rows=300)
    text = heads_pooling.embedding(pooling=pooling, normalise=True, width=8, opset=opset)
    head = Head(text=text, bind={"hidden": "last_hidden_state", "attention_mask": "attention_mask"})
    names = ("input_ids", "attention_mask", "token_type_ids")
    front = ragged.front([(name, ids) for name in names], pad_id=0, types=False, rows=rows)
    release = releases.default()
    (tmp_path / "plain.onnx").write_bytes(
        compose.compose(skeleton.read(path), weights="model.onnx", head=head, release=release)
    )
    content = compose.compose(
        skeleton.read(path), weights="model.onnx", head=head, release=release, front=front
    )
    (tmp_path / "ragged.onnx").write_bytes(content)
    plain = onnxruntime.InferenceSession(str(tmp_path / "plain.onnx"))
    served = onnxruntime.InferenceSession(str(tmp_path / "ragged.onnx"))
    assert [item.name for item in served.get_inputs()] == [tensor_names.TOKENS, tensor_names.LENGTHS]
    texts = [[2, 5, 3], [2, 3], [2, 7, 8, 9, 11, 3], [4]]
    together = served.run(None, feed(texts))[0]
    for number, row in enumerate(texts):
        kind = np.int32 if ids == INT32 else np.int64
        alone = {"input_ids": [row], "attention_mask": [[1] * len(row)], "token_type_ids": [[0] * len(row)]}
        expected = plain.run(None, {name: np.array(value, kind) for name, value in alone.items()})[0]
        np.testing.assert_allclose(together[number], expected[0], atol=1e-6)
        np.testing.assert_allclose(served.run(None, feed([row]))[0], expected, atol=1e-6)


@pytest.mark.parametrize("rows", [rows for rows in Rows if rows is not Rows.PACKED])
def test_a_mask_that_only_the_head_needs_comes_from_the_front(tmp_path: Path, rows: Rows) -> None:
    path = tiny.text_model(tmp_path / "model.onnx", mask="none", types=False)
    text = heads_pooling.embedding(pooling="cls", normalise=False, width=8, opset=17)
    head = Head(text=text, bind={"hidden": "last_hidden_state", "attention_mask": "attention_mask"})
    front = ragged.front([("input_ids", INT64), ("attention_mask", INT64)], pad_id=0, types=False, rows=rows)
    content = compose.compose(
        skeleton.read(path), weights="model.onnx", head=head, release=releases.default(), front=front
    )
    (tmp_path / "served.onnx").write_bytes(content)
    served = onnxruntime.InferenceSession(str(tmp_path / "served.onnx"))
    assert [item.name for item in served.get_inputs()] == [tensor_names.TOKENS, tensor_names.LENGTHS]
    assert served.run(None, feed([[2, 3], [4]]))[0].shape == (2, 8)
