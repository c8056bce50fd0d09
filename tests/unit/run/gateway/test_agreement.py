"""How far two answers of an endpoint agree, for each kind of task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from triton_repo_builder.run.gateway import agreement, recognition
from triton_repo_builder.run.gateway.agreement import Agreement


def floats(*values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def strings(*rows: list[str]) -> Any:
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for place, row in enumerate(rows):
        array[place] = [text.encode() for text in row]
    return array


def compared(task: str, first: Any, second: Any) -> Agreement:
    return agreement.compared(task, True, [first], [second])


def test_embeddings_by_cosine() -> None:
    first = {"embedding": floats([1, 0], [0, 2], [0, 0], [0, 0])}
    second = {"embedding": floats([2, 0], [2, 0], [0, 0], [1, 0])}
    result = compared("embedding", first, second)
    assert list(result.same) == [True, False, True, False]
    assert list(result.values) == [1, 0, 1, 0]


def test_parts_of_a_long_list_are_one_answer() -> None:
    part = {"embedding": floats([1, 0], [0, 2])}
    result = agreement.compared("embedding", True, [part, part], [part, part])
    assert list(result.same) == [True] * 4 and list(result.values) == [1.0] * 4


def test_no_cosine_is_above_one() -> None:
    vectors = {"embedding": np.random.default_rng(0).normal(size=(500, 33)).astype(np.float32)}
    assert max(compared("embedding", vectors, vectors).values) <= 1.0


def test_vectors_of_another_size_disagree() -> None:
    result = compared("embedding", {"embedding": floats([1, 0])}, {"embedding": floats([1, 0, 0])})
    assert (list(result.same), list(result.values)) == ([False], [])


def test_an_endpoint_without_batches() -> None:
    one = {"embedding": floats(1, 0, 0)}
    assert list(agreement.compared("embedding", False, [one], [one]).values) == [1.0]
    text = {"text": strings(["hello"])[0]}
    assert list(agreement.compared(recognition.SPEECH, False, [text], [text]).same) == [True]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [((3, 1, 2), (0.9, 0.1, 0.5), [True]), ((3, 1, 2), (3, 2, 1), [False]), ((3,), (1,), [])],
)
def test_reranked_lists_by_order(first: Any, second: Any, same: list[bool]) -> None:
    column = [{"score": floats(*values).reshape(-1, 1)} for values in (first, second)]
    result = compared("rerank", *column)
    assert list(result.same) == same
    assert list(result.values) == [pytest.approx(max(abs(a - b) for a, b in zip(first, second, strict=True)))]


def test_classes_by_the_label_and_the_largest_difference() -> None:
    first = {"label": strings(["good"], ["bad"]), "scores": floats([0.1, 0.9], [0.6, 0.4])}
    second = {"label": strings(["good"], ["good"]), "scores": floats([0.2, 0.8], [0.4, 0.6])}
    result = compared("text-classification", first, second)
    assert list(result.same) == [True, False]
    assert list(result.values) == pytest.approx([0.1, 0.2])


def test_classes_with_nothing_but_scores() -> None:
    first, second = {"scores": floats([0.1, 0.9])}, {"scores": floats([0.8, 0.2])}
    result = compared("text-classification", first, second)
    assert (list(result.same), list(result.values)) == ([False], pytest.approx([0.7]))


def test_labels_that_come_best_first_are_compared_by_name() -> None:
    first = {"labels": strings(["a", "b"]), "scores": floats([0.6, 0.4])}
    second = {"labels": strings(["b", "a"]), "scores": floats([0.55, 0.45])}
    result = compared("zero-shot-classification", first, second)
    assert (list(result.same), list(result.values)) == ([False], pytest.approx([0.15]))


def test_masks_by_their_best_tokens() -> None:
    def row(*tokens: list[str]) -> dict[str, Any]:
        return {"tokens": np.array([strings(*tokens)]), "scores": floats([[0.6, 0.2]] * len(tokens))}

    same, other = row(["a", "b"], ["c", "d"]), row(["a", "b"], ["d", "c"])
    assert list(compared("fill-mask", same, same).same) == [True]
    assert list(compared("fill-mask", same, other).same) == [False]


def test_entities_by_text_whatever_the_padding() -> None:
    first = {
        "label": strings(["PER", "", ""]),
        "text": strings(["Ada", "", ""]),
        "score": floats([0.9, 0, 0]),
    }
    second = {"label": strings(["PER"]), "text": strings(["Ada"]), "score": floats([0.8])}
    result = compared("token-classification", first, second)
    assert (list(result.same), list(result.values)) == ([True], [])
    assert list(compared("token-classification", second, second).values) == [0.0]
    other = {**second, "text": strings(["Bob"])}
    assert list(compared("token-classification", first, other).same) == [False]


def test_sparse_and_token_vectors_by_cosine() -> None:
    first = {"indices": np.array([[3, 7, 0]]), "values": floats([1, 1, 0])}
    second = {"indices": np.array([[7, 3]]), "values": floats([1, 1])}
    assert list(compared("sparse-embedding", first, second).values) == pytest.approx([1.0])
    tokens = {"token_embeddings": floats([[1, 0], [0, 0]]), "mask": np.array([[1, 0]])}
    shorter = {"token_embeddings": floats([[1, 0]]), "mask": np.array([[1]])}
    assert list(compared("late-interaction", tokens, shorter).values) == pytest.approx([1.0])
    both = {"token_embeddings": floats([[1, 0], [0, 1]]), "mask": np.array([[1, 1]])}
    assert list(compared("late-interaction", tokens, both).same) == [False]
