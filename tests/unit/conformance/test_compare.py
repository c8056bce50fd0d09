"""The comparison of ``make conformance`` sees what is wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from conformance import compare, table, tasks
from conformance.compare import Different
from conformance.serve import FAIL, PASS, PENDING, Judge, Result, groups


def texts(*values: str) -> Any:
    return np.array([value.encode() for value in values], dtype=object)


ENTITY = {"label": "PER", "start": 0, "end": 3, "score": 0.5}
SPAN = {"answer": "ab", "start": 1, "end": 3, "score": 0.5}


@pytest.mark.parametrize(
    ("name", "row", "expected", "entry"),
    [
        ("numbers", {"embedding": np.array([1.0, 2.0])}, [1.0, 2.5], {}),
        ("scores", {"scores": np.array([0.1, 0.9])}, {"scores": [0.1, 0.4], "label": "b", "score": 0.4}, {}),
        ("score", {"score": np.array([0.5])}, 1.0, {}),
        (
            "sparse",
            {"indices": np.array([3, -1]), "values": np.array([0.5, 0])},
            {"indices": [4], "values": [0.5]},
            {},
        ),
        ("late", {"token_embeddings": np.ones((2, 2))}, [[1.0, 1.0], [1.0, 1.5]], {}),
    ],
)
def test_a_number_that_is_off(name: str, row: Any, expected: Any, entry: Any) -> None:
    assert getattr(compare, name)(row, expected, entry) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "row", "expected", "entry"),
    [
        ("numbers", {"embedding": np.array([np.nan])}, [1.0], {}),
        ("numbers", {"embedding": np.array([1.0])}, [1.0, 1.0], {}),
        ("tokens", {"trb_tokens": np.array([2, 5, -1])}, {"input_ids": [2, 6], "token_type_ids": [0, 0]}, {}),
        (
            "tokens",
            {"input_ids": np.array([2, 5]), "attention_mask": np.array([0, 1])},
            {"input_ids": [2], "token_type_ids": [0]},
            {},
        ),
        ("scores", {"scores": np.array([1.0]), "label": texts("a")}, {"scores": [1.0], "label": "b"}, {}),
        ("entities", {"entities": texts(json.dumps([]))}, [ENTITY], {"TEXT": "abc"}),
        (
            "entities",
            {"entities": texts(json.dumps([{**ENTITY, "text": "abd"}]))},
            [ENTITY],
            {"TEXT": "abc"},
        ),
        (
            "answer",
            {"answer": texts("ab"), "start": np.array([0]), "end": np.array([3]), "score": np.array([0.5])},
            SPAN,
            {},
        ),
        (
            "masks",
            {"tokens": texts("a"), "scores": np.array([1.0])},
            [[{"text": "b", "score": 1.0, "token": 1}]],
            {},
        ),
        (
            "topics",
            {"labels": texts("b", "a"), "scores": np.array([0.6, 0.4])},
            {"labels": ["a", "b"], "scores": [0.6, 0.4]},
            {},
        ),
        ("late", {"token_embeddings": np.ones((1, 2))}, [[1.0, 1.0], [1.0, 1.0]], {}),
    ],
)
def test_what_must_be_the_same(name: str, row: Any, expected: Any, entry: Any) -> None:
    with pytest.raises(Different):
        getattr(compare, name)(row, expected, entry)


def test_padding_is_cut_off() -> None:
    expected = {"input_ids": [2, 5], "token_type_ids": [0, 1]}
    ragged = {"trb_tokens": np.array([2, 5, -1]), "trb_types": np.array([0, 1, 0])}
    assert compare.tokens(ragged, expected, {}) == 0
    assert compare.late({"token_embeddings": np.array([[1.0, 0], [0, 0]])}, [[1.0, 0.0]], {}) == 0


def test_a_refusal_must_be_shared() -> None:
    judge = Judge(tasks.TASKS["embedding (mean)"])
    judge.row(0, {}, {"error": "empty"}, lambda: {"embedding": np.zeros((1, 2))})
    judge.row(1, {}, [0.0, 0.0], lambda: {"embedding": np.zeros((1, 2))})
    assert list(judge.problems) == [0]
    assert "transformers refuses" in judge.problems[0]


def test_rows_of_a_request_have_one_shape() -> None:
    entries = [{"LABELS": ["a"] * (1 + n % 2)} for n in range(20)]
    (cell,) = tasks.cells(["BERT/embedding (mean)"])
    found = groups(cell, entries, [0] * 19 + [{"error": ""}])
    assert sorted(number for group in found for number in group) == list(range(19))
    assert all(len({len(entries[number]["LABELS"]) for number in group}) == 1 for group in found)


def test_the_page_shows_every_state() -> None:
    cells = tasks.cells(["BERT/"])[:3]
    results = [
        Result(cell=cells[0], state=PASS, asked=71, same=71),
        Result(cell=cells[1], state=FAIL, asked=71, same=70, difference=0.5, reason="input 3: `x`\nis 'y'"),
        Result(cell=cells[2], state=PENDING, reason="no such task yet"),
    ]
    page = table.write(results, ["torch 2"], "make conformance")
    assert "3 cells: 1 pass, 1 fail, 0 refused, 1 pending; 142 inputs compared." in page
    assert "| BERT | 71/71 | **FAIL** 70/71, 5e-01 | *pending* |" in page
    assert f"- {cells[1]}: `input 3: 'x'\\nis 'y'`" in page
    assert "- no such task yet" in page


def test_every_cell_has_its_own_name() -> None:
    cells = tasks.cells()
    assert len({cell.endpoint for cell in cells}) == len(cells)
    assert all(len(task.asked) >= 50 for task in tasks.TASKS.values() if not task.images)
