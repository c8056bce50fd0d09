"""Numbers of our Python models for the metrics page: summed in memory, delivered once a second."""

from __future__ import annotations

import ast
import gc
import json
import sys
import threading
import time
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import triton_python_backend_utils as pb_utils

from triton_repo_builder.base import resources

FILE = resources.runtime("metrics.py")
spec = util.spec_from_file_location("trb_metrics", FILE)
assert spec is not None
assert spec.loader is not None
module: Any = util.module_from_spec(spec)
spec.loader.exec_module(module)
STEP = {"model": "bert_tokenizer", "version": "2"}


@pytest.fixture(autouse=True)
def _page() -> None:
    pb_utils.MetricFamily.made.clear()


def metrics(**parameters: str) -> Any:
    config = {"parameters": {name: {"string_value": value} for name, value in parameters.items()}}
    args = {"model_name": "bert_tokenizer", "model_version": "2", "model_config": json.dumps(config)}
    return module.Metrics(args)


def page() -> dict[str, float]:
    return pb_utils.MetricFamily.page(**STEP)


def closed(made: Any) -> dict[str, float]:
    made.close()
    return page()


def test_a_counter_starts_at_0_and_sums() -> None:
    made = metrics()
    add = made.counter("trb_texts_total", "Texts")
    assert page() == {"trb_texts_total": 0}
    add(2)
    add(0)
    add(float("nan"))
    add(3)
    assert page() == {"trb_texts_total": 0}
    assert closed(made) == {"trb_texts_total": 5}
    assert closed(made) == {"trb_texts_total": 5}


def test_a_histogram_is_what_prometheus_makes_of_the_values() -> None:
    made = metrics()
    add = made.histogram("trb_x", "X", (0.00025, 1, 4096), phase="write")
    add(1)
    add(0.0001, 2)
    add(5000)
    add(float("inf"))
    buckets = {"0.00025": 2, "1": 3, "4096": 3, "+Inf": 4}
    assert closed(made) == {
        **{f'trb_x_bucket{{le="{le}",phase="write"}}': count for le, count in buckets.items()},
        'trb_x_count{phase="write"}': 4,
        'trb_x_sum{phase="write"}': pytest.approx(5001.0002),
    }


def test_no_bucket_ever_exceeds_a_wider_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = metrics()
    add = made.histogram("trb_x", "X", (1, 2))
    add(0.5)
    sent: list[str] = []
    increment = pb_utils.Metric.increment

    def noted(metric: Any, value: float) -> None:
        made_of = {id(other): labels for (_, labels), other in pb_utils.MetricFamily.made.items()}
        sent.append(dict(made_of[id(metric)]).get("le", ""))
        increment(metric, value)

    monkeypatch.setattr(pb_utils.Metric, "increment", noted)
    made.close()
    assert sent[:3] == ["+Inf", "2", "1"]


def test_labels_beyond_the_most_are_other() -> None:
    made = metrics()
    add = made.labelled("trb_answers_total", "Answers", "label", most=2)
    add("first", 0)
    for label in ("b", "c", "b", "d", "first", "\n", "x" * 1000):
        add(label)
    counts = {"first": 1, "b": 2, "other": 4}
    assert closed(made) == {f'trb_answers_total{{label="{label}"}}': n for label, n in counts.items()}


def test_a_long_label_is_cut() -> None:
    made = metrics()
    made.labelled("trb_answers_total", "Answers", "label")("x" * 1000)
    assert closed(made) == {f'trb_answers_total{{label="{"x" * module.LONGEST}"}}': 1}


def test_a_gauge_is_set_at_once() -> None:
    metrics().gauge("trb_reference_share", "Share", bucket="8")(0.25)
    assert page() == {'trb_reference_share{bucket="8"}': 0.25}


def use(made: Any) -> None:
    made.counter("trb_texts_total", "Texts")(1)
    made.rows()(1)
    made.phase("write")(0.1)
    made.confidence()(0.5)
    made.gauge("trb_reference_share", "Share", bucket="8")(1)
    made.answers()("label")
    made.close()


def test_switched_off() -> None:
    use(metrics(metrics="off"))
    assert not pb_utils.MetricFamily.made


def test_a_server_without_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pb_utils.MetricFamily, "enabled", False)
    use(metrics())
    monkeypatch.delattr(pb_utils, "MetricFamily")
    use(metrics())


def test_numbers_are_delivered_without_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECOND", 0.01)
    made = metrics()
    add = made.counter("trb_texts_total", "Texts")
    for expected in (1, 2):
        add(1)
        deadline = time.monotonic() + 10
        while page()["trb_texts_total"] != expected:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    made.close()


def test_nothing_is_lost_between_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECOND", 0.001)
    made = metrics()
    add, rows = made.counter("trb_texts_total", "Texts"), made.rows()

    def work() -> None:
        for _ in range(2000):
            add(1)
            rows(4)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result = closed(made)
    assert result["trb_texts_total"] == result["trb_batch_rows_count"] == 6000
    assert result["trb_batch_rows_sum"] == 24000


def test_families_stay_when_the_model_ends() -> None:
    """tritonserver 24.10 dies of deleted ones."""
    made = metrics()
    made.counter("trb_texts_total", "Texts")
    made.close()
    gc.collect()
    (metric,) = pb_utils.MetricFamily.made.values()
    assert metric.family() is not None


def test_imports_are_those_of_the_server() -> None:
    tree = ast.parse(FILE.read_text(), feature_version=(3, 10))
    names = {
        name.split(".")[0]
        for item in ast.walk(tree)
        if isinstance(item, (ast.Import, ast.ImportFrom))
        for name in (
            [item.module or ""] if isinstance(item, ast.ImportFrom) else [alias.name for alias in item.names]
        )
    }
    assert names - {"triton_python_backend_utils"} <= sys.stdlib_module_names


def test_the_reference_is_exported_by_the_model_that_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    distributions = {
        "text_tokens": {"texts": 9, "shares": {"8": 0.25, "+Inf": 0.75}},
        "answers": {"texts": 3, "model": "bert_model", "shares": {"good": 1}},
    }
    (tmp_path / "reference.json").write_text(json.dumps({"distributions": distributions}))
    monkeypatch.setattr(module, "REFERENCE", tmp_path / "reference.json")
    made = metrics()
    made.reference()
    tokens, answers = 'metric="text_tokens",model="bert_tokenizer"', 'metric="answers",model="bert_model"'
    assert pb_utils.MetricFamily.page(version="2") == {
        f"trb_reference_texts{{{tokens}}}": 9,
        f'trb_reference_share{{bucket="8",{tokens}}}': 0.25,
        f'trb_reference_share{{bucket="+Inf",{tokens}}}': 0.75,
        f"trb_reference_texts{{{answers}}}": 3,
        f'trb_reference_share{{bucket="good",{answers}}}': 1,
    }


@pytest.mark.parametrize("content", ["", "{", "[]", '{"distributions": {"answers": {"texts": "x"}}}'])
def test_a_damaged_reference_leaves_the_model_without(
    content: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "reference.json").write_text(content)
    monkeypatch.setattr(module, "REFERENCE", tmp_path / "reference.json")
    metrics().reference()
    assert page() == {}


def test_without_a_reference_or_metrics_there_are_no_shares(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "REFERENCE", tmp_path / "reference.json")
    metrics().reference()
    stored = {"text_tokens": {"texts": 1, "shares": {"8": 1}}}
    (tmp_path / "reference.json").write_text(json.dumps({"distributions": stored}))
    metrics(metrics="off").reference()
    assert page() == {}
