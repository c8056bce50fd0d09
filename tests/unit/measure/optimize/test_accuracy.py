from typing import Any

import numpy as np
import pytest

from triton_repo_builder.measure.optimize import accuracy


def _vectors(noise: float, count: int = 200) -> list[dict[str, Any]]:
    chance = np.random.default_rng(1)
    vectors = chance.normal(size=(count, 1, 64)).astype(np.float32)
    moved = vectors + noise * np.random.default_rng(2).normal(size=vectors.shape).astype(np.float32)
    return [{"embedding": vector} for vector in moved]


@pytest.mark.parametrize(("noise", "passes"), [(0.0, True), (0.05, True), (0.3, False)])
def test_vectors_are_compared_by_cosine(noise: float, passes: bool) -> None:
    found = accuracy.compare("embedding", _vectors(0), _vectors(noise))
    assert found.measure == "cosine" and found.lowest is not None
    assert found.lowest <= found.mean <= 1.0 + 1e-6
    assert (not found.failure(0.005)) == passes


@pytest.mark.parametrize(("odd", "passes"), [(1, True), (4, False)])
def test_one_odd_text_in_a_hundred_is_forgiven(odd: int, passes: bool) -> None:
    original = _vectors(0)
    moved = [{"embedding": one["embedding"] + 0.4 * (number < odd)} for number, one in enumerate(original)]
    failure = accuracy.compare("embedding", original, moved).failure(0.005)
    assert ("1 % quantile of the cosine" in failure) != passes and (failure == "") == passes


def _label(label: str, score: float) -> dict[str, Any]:
    return {
        "label": np.array([[label]], dtype=object),
        "scores": np.array([[score, 1 - score]], np.float32),
    }


def test_labels_are_compared_by_agreement_and_the_change_of_a_probability() -> None:
    original = [_label("yes", 0.9)] * 10
    near = accuracy.compare("text-classification", original, [_label("yes", 0.88)] * 10)
    assert near.measure == "label agreement" and near.mean == 1.0 and near.failure(0.005) == ""
    assert near.change == pytest.approx(0.02, abs=1e-6) == near.difference
    far = accuracy.compare("text-classification", original, [_label("yes", 0.6)] * 10)
    assert "a probability changes by 0.300" in far.failure(0.005)
    other = accuracy.compare("text-classification", original, [*original[1:], _label("no", 0.9)])
    assert other.mean == pytest.approx(0.9) and "label agreement 0.90000" in other.failure(0.005)


def test_single_scores_are_compared_by_their_order() -> None:
    scores = [{"score": np.array([[value]], np.float32)} for value in (0.1, 0.5, 0.9, 0.5)]
    found = accuracy.compare("rerank", scores, scores)
    assert (found.measure, found.mean) == ("order agreement", 1.0)
    turned = accuracy.compare("rerank", scores, scores[::-1])
    assert turned.mean < 1 and turned.failure(0.005)
    shifted = [{"score": one["score"] + 0.2} for one in scores]
    moved = accuracy.compare("rerank", scores, shifted)
    assert moved.mean == 1 and "a score changes by 0.250, more than 0.1" in moved.failure(0.005)


def test_vectors_beside_numbers_that_count_are_vectors() -> None:
    answers = [{"vectors": vector["embedding"], "length": np.array([[4]])} for vector in _vectors(0, 20)]
    assert accuracy.compare("late-interaction", answers, answers).measure == "cosine"
    assert accuracy.compare("tensor", answers, answers).measure == "cosine"


def test_words_tokens_and_spans_overlap() -> None:
    one, two = ({"text": np.array([[text]], dtype=object)} for text in ("the cat sat down", "the cat sat up"))
    assert accuracy.compare("automatic-speech-recognition", [one], [two]).mean == pytest.approx(0.75)
    tokens = {"ids": np.array([[1, 2, 3]])}, {"ids": np.array([[3, 1, 4]])}
    assert accuracy.compare("fill-mask", [tokens[0]], [tokens[1]]).mean == pytest.approx(2 / 3)
    empty = {"ids": np.zeros((1, 0), np.int64)}
    assert accuracy.compare("token-classification", [empty], [empty]).mean == 1.0
    assert accuracy.compare("token-classification", [empty], [tokens[0]]).mean == 0.0


def test_an_answer_that_is_no_number_fails() -> None:
    nan = [{"embedding": np.full((1, 64), np.nan, np.float32)}] * 200
    assert accuracy.compare("embedding", _vectors(0), nan).failure(0.005)
