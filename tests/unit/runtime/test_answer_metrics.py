"""Metrics of a graph's answers: what is counted of them, and when a row is sent once more for it."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

from triton_repo_builder.base import resources


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"trb_{name}", resources.runtime(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


metrics, answer_metrics = load("metrics"), load("answer_metrics")


@pytest.fixture(autouse=True)
def _page() -> None:
    pb_utils.MetricFamily.made.clear()


def page(counted: Any) -> dict[str, float]:
    """Series of the metrics page that are not 0, without model and version."""
    counted.close()
    shown = {}
    for series, value in pb_utils.MetricFamily.page().items():
        labels = [label for label in series[:-1].split("{")[1].split(",") if label.split("=")[0] == "label"]
        if value and "le=" not in series:
            shown[series.split("{")[0] + "".join(labels)] = value
    return shown


def strings(*rows: list[str]) -> Any:
    return np.array([[text.encode() for text in row] for row in rows], dtype=object)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (
            {
                "label": strings(["good"], ["bad"], ["good"]),
                "score": np.array([[0.5], [0.25], [0.75]], np.float32),
            },
            {
                'trb_answers_totallabel="good"': 2,
                'trb_answers_totallabel="bad"': 1,
                "trb_answer_confidence_count": 3,
                "trb_answer_confidence_sum": 1.5,
            },
        ),
        (
            {"embedding": np.array([[3, 4], [0, 1]], np.float16)},
            {"trb_embedding_norm_count": 2, "trb_embedding_norm_sum": 6},
        ),
        (
            {"labels": strings(["cat", "dog"], ["dog", ""]), "count": np.array([[2], [1]], np.int32)},
            {'trb_boxes_totallabel="cat"': 1, 'trb_boxes_totallabel="dog"': 2},
        ),
        ({"score": np.array([[0.5]], np.float32)}, {}),
    ],
)
def test_answers_are_counted_by_the_outputs_of_the_head(outputs: Any, expected: dict[str, float]) -> None:
    counted = metrics.Metrics({"model_name": "m", "model_version": "1"})
    answer_metrics.Answers(counted, list(outputs))(outputs)
    assert page(counted) == expected


def test_an_output_that_nobody_asked_for_is_not_counted() -> None:
    counted = metrics.Metrics({"model_name": "m", "model_version": "1"})
    answer_metrics.Answers(counted, ["label", "score", "scores"])({"scores": np.zeros((1, 3), np.float32)})
    answer_metrics.Answers(counted, ["embedding"])({})
    assert page(counted) == {}


ARGS = {
    "model_name": "minilm_tokenizer",
    "model_version": "3",
    "model_config": json.dumps(
        {
            "max_batch_size": 8,
            "instance_group": [{"count": 1}],
            "parameters": {
                "answers_model": {"string_value": "minilm_model"},
                "answers": {"string_value": "embedding"},
            },
        }
    ),
}


class Model:
    """Answers as the model behind the sample; notes what it was sent."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.error: Any = None
        self.answered = threading.Semaphore(0)

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        self.answered.release()
        vector = pb_utils.Tensor("embedding", np.array([[0, 2]], np.float32))
        return pb_utils.InferenceResponse([] if self.error else [vector], self.error)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    fake = Model()
    monkeypatch.setattr(pb_utils.InferenceRequest, "server", fake, raising=False)
    monkeypatch.setattr(answer_metrics, "FIRST", 0.0)
    monkeypatch.setattr(answer_metrics, "LEAST", 0.0)
    return fake


@pytest.fixture
def sample(model: Model) -> Iterator[Any]:
    sampling = answer_metrics.AnswerSample(metrics.Metrics, ARGS)
    yield sampling
    sampling.close()


def tokens(*rows: list[int]) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("trb_tokens", np.array(rows, np.int32))])


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_the_first_row_goes_to_the_model_of_the_same_version(sample: Any, model: Model) -> None:
    sample.offer([tokens([1, 2, -1], [3, 4, 5])])
    wait(lambda: sample._timer is None)
    (request,) = model.requests
    assert request.model == ("minilm_model", 3)
    assert [tensor.as_numpy().tolist() for tensor in request.inputs()] == [[[1, 2, -1]]]
    assert request.requested_output_names() == {"embedding"}
    sample.close()
    made = pb_utils.MetricFamily.page()
    assert made['trb_embedding_norm_sum{model="minilm_model",version="3"}'] == 2


def test_one_row_in_so_many_is_sent_again(sample: Any, model: Model) -> None:
    sample.offer([tokens([1])])
    wait(lambda: sample._timer is None)
    sample._due = float("inf")
    for _ in range(answer_metrics.EVERY - 1):
        sample.offer([tokens([1])])
    assert len(model.requests) == 1
    sample.offer([tokens([2], [3])])
    wait(lambda: len(model.requests) == 2)


def test_a_sample_takes_a_small_share_of_the_time(sample: Any) -> None:
    sample.offer([tokens([1])])
    wait(lambda: sample._timer is None)
    took = sample._pause / 2
    assert sample._due >= time.monotonic() + took * answer_metrics.EVERY / 2


def test_a_fast_model_gets_few_samples(sample: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_metrics, "LEAST", 1000.0)
    sample.offer([tokens([1])])
    wait(lambda: sample._timer is None)
    sample.offer([tokens(*[[1]] * 2 * answer_metrics.EVERY)])
    assert sample._timer is None
    assert len(model.requests) == 1


def test_refused_requests_are_no_samples(sample: Any, model: Model) -> None:
    sample.offer([pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))])
    assert sample._timer is None
    assert model.requests == []


def test_a_model_that_cannot_answer_is_left_alone_for_a_while(sample: Any, model: Model) -> None:
    model.error = pb_utils.TritonError("not loaded")
    sample.offer([tokens([1])])
    wait(lambda: sample._timer is None)
    sample.offer([tokens(*[[1]] * answer_metrics.EVERY)])
    assert len(model.requests) == 1
    assert sample._free == sample._due > time.monotonic() + answer_metrics.RETRY / 2


@pytest.mark.parametrize("why", ["another engine counts", "no parameter", "closed"])
def test_nothing_is_sampled(why: str, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    args = dict(ARGS)
    if why == "another engine counts":
        monkeypatch.setattr(answer_metrics, "counted_by_the_backend", lambda: True)
    if why == "no parameter":
        args["model_config"] = json.dumps({"max_batch_size": 8})
    sampling = answer_metrics.AnswerSample(metrics.Metrics, args)
    if why == "closed":
        sampling.close()
    sampling.offer([tokens([1])])
    assert sampling._timer is None
    assert model.requests == []
