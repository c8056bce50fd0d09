"""Golden cases as traffic: taken in turn, timed, compared as their task has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import BROKEN, Body, HttpClient, RequestFailed
from triton_repo_builder.ship.canary.golden import Golden, GoldenRequest, compared


def tensor(name: str, datatype: str = "FP32") -> Tensor:
    return Tensor(name=name, datatype=datatype, shape=(-1, 2))


PLAIN = Endpoint(name="plain", inputs=(tensor("X"),), outputs=(tensor("Y"),), max_batch_size=8)
LABELS = Endpoint(
    name="labels",
    inputs=(tensor("TEXT", "BYTES"),),
    outputs=(tensor("label", "BYTES"), tensor("score"), tensor("scores")),
    max_batch_size=8,
)


def request(endpoint: Endpoint, case: str = "one", tolerance: float = 1e-4) -> GoldenRequest:
    return GoldenRequest(
        endpoint=endpoint, case=case, body=Body(data=case.encode(), headers={}), tolerance=tolerance
    )


def numbers(*values: float) -> dict[str, Any]:
    return {"Y": np.array([values], dtype=np.float32)}


def label(text: str, score: float) -> dict[str, Any]:
    scores = np.array([[score, 1 - score]], dtype=np.float32)
    return {
        "label": np.array([[text.encode()]], dtype=object),
        "score": scores[:, :1],
        "scores": scores,
    }


@pytest.mark.parametrize(
    ("endpoint", "stable", "canary", "different"),
    [
        (PLAIN, numbers(1, 2), numbers(1, 2.00001), 0),
        (PLAIN, numbers(1, 2), numbers(1, 2.1), 1),
        (PLAIN, numbers(1, 2), numbers(1, 2, 3), 1),
        (PLAIN, numbers(1, 2), {}, 1),
        (PLAIN, numbers(1, float("nan")), numbers(1, float("nan")), 0),
        (LABELS, label("good", 0.9), label("good", 0.6), 0),  # a new version may be less sure
        (LABELS, label("good", 0.9), label("bad", 0.9), 1),
        (LABELS, label("good", 0.9), numbers(1), 1),
    ],
)
def test_compared(endpoint: Endpoint, stable: Any, canary: Any, different: int) -> None:
    result = compared(request(endpoint), stable, canary)
    assert (result.compared, result.different) == (1, different)
    assert bool(result.example) == bool(different)


class Server(HttpClient):
    """Answers without a network."""

    def __init__(self, answer: Mapping[str, Any] | str) -> None:
        super().__init__("http://127.0.0.1:1")
        self.answer, self.cases = answer, list[str]()

    def infer(self, model: str, body: Body) -> dict[str, Any]:
        self.cases.append(bytes(body.data).decode())
        if isinstance(self.answer, str):
            raise RequestFailed(BROKEN, "500", self.answer)
        return dict(self.answer)


def test_each_case_goes_to_both_in_turn() -> None:
    stable, canary = Server(numbers(1, 2)), Server(numbers(1, 2))
    golden = Golden([request(PLAIN, "a"), request(PLAIN, "b"), request(PLAIN, "c")], stable, canary)
    asked = golden.round().plus(golden.some(2))
    assert stable.cases == canary.cases == ["a", "b", "c", "a", "b"]
    assert (asked.requests, asked.stable.requests, asked.canary.requests) == (5, 5, 5)
    assert (asked.answers.compared, asked.answers.different) == (5, 0)
    assert golden.some(100, seconds=0.0).requests == 0


def test_a_failure_is_a_different_answer() -> None:
    golden = Golden([request(PLAIN)], Server(numbers(1, 2)), Server("the model is out of sorts"))
    asked = golden.some(3)
    assert (asked.canary.failures, asked.stable.failures) == (3, 0)
    assert (asked.answers.compared, asked.answers.different) == (3, 3)
    assert "out of sorts" in asked.answers.example


def test_a_case_that_both_refuse_says_nothing() -> None:
    asked = Golden([request(PLAIN)], Server("no"), Server("no")).some(3)
    assert (asked.canary.failures, asked.stable.failures, asked.answers.compared) == (3, 3, 0)


def test_no_cases() -> None:
    assert Golden([], Server("no"), Server("no")).some(3).requests == 0
