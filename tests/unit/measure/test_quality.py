from collections import Counter

import pytest

from triton_repo_builder.measure import quality


def test_accuracy_and_macro_f1_as_scikit_learn() -> None:
    right, given = ["a", "a", "a", "b"], ["a", "a", "b", "c"]
    assert quality.accuracy(given, right) == 0.5
    # F1 of a: 2 * 2 / (2 + 3); of b and c: none is right.
    assert quality.macro_f1(given, right) == pytest.approx(0.8 / 3)
    assert quality.macro_f1(right, right) == 1


def test_spearman_as_scipy() -> None:
    assert quality.spearman([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert quality.spearman([4, 3, 2, 1], [10, 20, 30, 1000]) == pytest.approx(-1)
    # scipy.stats.spearmanr([1, 2, 2, 3], [1, 3, 2, 4]).statistic
    assert quality.spearman([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.9486832980505138)
    assert quality.spearman([1, 1], [1, 2]) == 0


def test_ndcg_as_scikit_learn() -> None:
    assert quality.ndcg([3, 2, 1], [3, 2, 0]) == pytest.approx(1)
    # sklearn.metrics.ndcg_score([[10, 0, 0, 1, 5]], [[0.1, 0.2, 0.3, 4, 70]])
    assert quality.ndcg([0.1, 0.2, 0.3, 4, 70], [10, 0, 0, 1, 5]) == pytest.approx(0.6956940443813076)
    assert quality.ndcg([1, 2], [0, 0]) == 1
    many = list(range(20))
    assert quality.ndcg(many, [1, *[0] * 19]) == 0  # below the tenth place nothing counts


def test_f1_of_what_is_found() -> None:
    right, found = Counter({"Anna": 1, "Bonn": 1}), Counter({"Anna": 1})
    assert quality.overlap_f1([(found, right)]) == pytest.approx(2 / 3)
    assert quality.overlap_f1([(Counter(), Counter())]) == 1


def test_answers_are_compared_as_squad_does() -> None:
    found = quality.answers(["The green house.", "no"], ["green house", "yes"])
    assert found == {"exact match": 0.5, "F1": 0.5}
