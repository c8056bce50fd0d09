"""What the comparison of metamorphic tests takes for a difference."""

import json
from typing import Any

import numpy as np
import pytest

from tests.reliability import metamorphic

ENTITY = {"label": "PER", "score": 0.7751268744468689, "start": 0, "end": 4, "text": "Anna"}


def entities(*found: dict[str, Any]) -> Any:
    return np.array([json.dumps(found).encode()], dtype=object)


def difference(*found: dict[str, Any]) -> float:
    got, expected = (
        metamorphic.parts(metamorphic.WHOLE, each) for each in (entities(*found), entities(ENTITY))
    )
    return max(metamorphic.apart(one, other) for one, other in zip(got, expected, strict=True))


def test_scores_in_a_text_are_held_to_the_tolerance_of_numbers() -> None:
    assert difference({**ENTITY, "score": 0.7751268148422241}) <= 1
    assert difference({**ENTITY, "score": 0.7752}) > 1


@pytest.mark.parametrize(
    "found", [[], [ENTITY, ENTITY], [{**ENTITY, "end": 5}], [{**ENTITY, "label": "LOC"}]]
)
def test_words_and_places_must_be_the_same(found: list[dict[str, Any]]) -> None:
    assert difference(*found) == float("inf")
