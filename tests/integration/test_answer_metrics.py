"""Answers of graphs without a Python step after them, on the metrics page of a real server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_detectors
import tiny_images

from tests.support.servers import free
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, statistics
from triton_repo_builder.run.client.codec import encode_binary

pytestmark = pytest.mark.server
SERIES = re.compile(r"^(trb_\w+|nv_inference_count)\{(.*)\} (\S+)$", re.MULTILINE)
SAMPLE_AT_ONCE = "\ncounted_by_the_backend = bool\n"
"""This engine counts in the model itself: what the step before it does on Triton's own backend is forced."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("answers")
    repository = root / "repository"
    for model, options in (
        (tiny.classifier(root / "mood"), {}),
        (tiny.classifier(root / "silent"), {"metrics": "off"}),
        (tiny.embedder(root / "vector"), {}),
        (tiny.embedder(root / "sampled"), {"instances": 1}),
        (tiny_detectors.detr(root / "things"), {"score_threshold": 0.0}),
    ):
        tiny.put(model, repository, warmup=False, **options)
    code = repository / "sampled_tokenizer" / "1" / "answer_metrics.py"
    code.write_text(code.read_text() + SAMPLE_AT_ONCE)
    with serve.start(repository, free()) as running:
        yield running


def page(server: Any, model: str) -> dict[str, float]:
    """Series of a model, without the labels that all have."""
    text, problem = statistics.read_metrics(server.urls.metrics)
    assert not problem
    common = re.compile(f',?model="{model}"|,?version="1"')
    return {
        name + common.sub("", labels).strip(","): float(value)
        for name, labels, value in SERIES.findall(text)
        if f'model="{model}"' in labels
    }


def until(condition: Callable[[], bool]) -> None:
    """Metrics come a second late."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ask(server: Any, name: str, *texts: str) -> dict[str, Any]:
    rows = np.array([[text.encode()] for text in texts], dtype=object)
    return dict(HttpClient(server.urls.http, 30.0).infer(name, encode_binary({"TEXT": rows})))


def test_labels_and_confidence(server: Any) -> None:
    labels, scores = [], []
    for text in ("the fox", "hello", "a quick dog"):
        answer = ask(server, "mood", text, f"{text} {text}")
        labels += [label.decode() for label in answer["label"].reshape(-1)]
        scores += answer["score"].reshape(-1).tolist()
    until(lambda: page(server, "mood_model").get("trb_answer_confidence_count") == 6)
    made = page(server, "mood_model")
    counted = {label: made.get(f'trb_answers_totallabel="{label}"', 0) for label in set(labels)}
    assert counted == {label: labels.count(label) for label in set(labels)}
    assert made["trb_answer_confidence_sum"] == pytest.approx(sum(scores))
    assert (made["trb_batch_rows_count"], made["trb_batch_rows_sum"]) == (3, 6)
    assert made['trb_phase_seconds_countphase="infer"'] == 3


def test_norms(server: Any) -> None:
    ask(server, "vector", "hello", "the fox", "dog")
    until(lambda: page(server, "vector_model").get("trb_embedding_norm_count") == 3)
    assert page(server, "vector_model")["trb_embedding_norm_sum"] == pytest.approx(3)


def test_boxes(server: Any) -> None:
    image = np.array([[tiny_images.file()]], dtype=object)
    answer = HttpClient(server.urls.http, 30.0).infer("things", encode_binary({"IMAGE": image}))
    labels = [label.decode() for label in answer["labels"][0][: int(answer["count"][0, 0])]]
    assert labels
    expected = {f'trb_boxes_totallabel="{label}"': labels.count(label) for label in set(labels)}
    until(lambda: expected.items() <= page(server, "things_model").items())


def test_a_row_is_sent_once_more_and_counted(server: Any) -> None:
    time.sleep(1)  # no sample in the first second, in which other models load
    first = ask(server, "sampled", "hello", "the fox")
    until(lambda: page(server, "sampled_model").get("trb_embedding_norm_count") == 3 + 1)
    made = page(server, "sampled_model")
    assert made["nv_inference_count"] == 3, "two rows, and one of them again"
    assert made["trb_embedding_norm_sum"] == pytest.approx(4), "here the backend counts the sample, too"
    np.testing.assert_array_equal(first["embedding"], ask(server, "sampled", "hello", "the fox")["embedding"])


def test_switched_off(server: Any) -> None:
    ask(server, "silent", "hello")
    text, _ = statistics.read_metrics(server.urls.metrics)
    assert 'model="silent_model"' in text
    assert not [line for line in text.splitlines() if line.startswith("trb_") and "silent" in line]
