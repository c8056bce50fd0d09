"""The autoscaler's recording rules and queries on synthetic series, by promtool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import tuned_deployments as deployments
from tests.support.prometheus import promtool
from triton_repo_builder.ship.targets import scaling
from triton_repo_builder.ship.targets.facts import Deployment

pytestmark = pytest.mark.prometheus
TEXT = 'objective = "p99=200ms"\n[autoscaling]\nmost = 9\nreport = "report.json"\n'
DELAY = 0.05
"""Seconds that the model's batcher may wait."""
MINUTES = 10
MODELS = ("sentiment_tokenizer", "sentiment_model")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """The golden repository with a delay of its batcher."""
    root = tmp_path_factory.mktemp("scaled")
    deployments.folder(root)
    config = root / "model_repository" / "sentiment_model" / "config.pbtxt"
    delayed = f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY * 1e6:.0f} }}"
    config.write_text(config.read_text().replace("dynamic_batching { }", delayed))
    deployments.report(root / "report.json", root / "model_repository")
    return deployments.deployment(root, TEXT)


def batches(deployment: Deployment, model: str) -> int:
    return next(each.batch_of_replica for each in deployment.batchers if each.model == model)


def series(
    instance: str, rate: float = 10.0, queue: float = 0.0, pending: Mapping[str, float] | None = None
) -> Iterator[dict[str, str]]:
    """A replica: requests a second, seconds that each waits for the model, and gauges by model."""
    for model in (*MODELS, "sentiment"):
        labels = f'{{instance="{instance}", model="{model}", version="1", namespace="a"}}'
        waited = queue * 1e6 if model == "sentiment_model" else 0
        for name, step in (("request_success", rate * 15), ("queue_duration_us", rate * 15 * waited)):
            values = f"0+{step:g}x{MINUTES * 4}"
            yield {"series": f"nv_inference_{name}{labels}", "values": values}
        gauge = (pending or {}).get(model, 0)
        yield {"series": f"nv_inference_pending_request_count{labels}", "values": f"{gauge:g}x{MINUTES * 4}"}


def hold(
    deployment: Deployment,
    folder: Path,
    replicas: list[dict[str, str]],
    values: Mapping[str, float],
    matchers: str = "",
) -> None:
    """That expressions have these values at the end."""
    (folder / "scaling.yml").write_text(scaling.rules(deployment, matchers))
    checks = [
        {
            "expr": expression,
            "eval_time": f"{MINUTES - 1}m",
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        for expression, value in values.items()
    ]
    test: dict[str, Any] = {"interval": "15s", "input_series": replicas, "promql_expr_test": checks}
    document = {"rule_files": ["scaling.yml"], "evaluation_interval": "15s", "tests": [test]}
    (folder / "tests.json").write_text(json.dumps(document))
    promtool("test", "rules", folder / "tests.json")


def queries(deployment: Deployment) -> tuple[str, str, float]:
    rule = scaling.scaling(deployment)
    assert rule is not None
    pending, load = rule.metrics
    # promtool compares floats exactly.
    return f"round({pending.query}, 0.001)", f"round({load.query}, 0.001)", pending.target


def test_the_queries_are_sums_over_the_replicas(deployment: Deployment, tmp_path: Path) -> None:
    pending, load, target = queries(deployment)
    full = batches(deployment, "sentiment_model")
    waiting = DELAY * 10 + 1.5 * target * full
    replicas = [
        *series("a", queue=DELAY, pending={"sentiment_model": waiting}),
        *series("b", queue=DELAY, pending={"sentiment_model": waiting}),
    ]
    hold(deployment, tmp_path, replicas, {load: 20, pending: round(3 * target, 3)})


def test_waiting_that_the_batcher_intends_asks_for_no_replica(deployment: Deployment, tmp_path: Path) -> None:
    """Requests that wait as long as they are told to: 50 ms in the queue, and no backlog."""
    pending, load, _ = queries(deployment)
    replicas = [*series("a", rate=2, queue=DELAY, pending={"sentiment_model": 2 * DELAY})]
    excess = 'max(trb:queue_excess_seconds:mean1m{deployment="bert", model="sentiment_model"})'
    hold(deployment, tmp_path, replicas, {load: 2, pending: 0, excess: 0})


def test_a_replica_that_is_stuck_still_counts(deployment: Deployment, tmp_path: Path) -> None:
    """It answers nothing, so that there is no time in the queue: the gauge alone says that requests wait."""
    pending, load, target = queries(deployment)
    full = batches(deployment, "sentiment_model")
    replicas = [*series("a", rate=0, pending={"sentiment_model": 100 * full})]
    hold(deployment, tmp_path, replicas, {load: 0, pending: round(2 * target, 3)})


def test_a_starved_tokenizer_is_told_from_a_full_model(deployment: Deployment, tmp_path: Path) -> None:
    full = batches(deployment, "sentiment_tokenizer")
    replicas = [*series("a", pending={"sentiment_tokenizer": 3 * full})]
    by_model = 'sum(trb:pending_batches:mean1m{{deployment="bert", model="{}"}})'.format
    values = {by_model("sentiment_tokenizer"): 3, by_model("sentiment_model"): 0}
    hold(deployment, tmp_path, replicas, values)


def test_the_ensemble_and_other_namespaces_do_not_count(deployment: Deployment, tmp_path: Path) -> None:
    pending, load, _ = queries(deployment)
    replicas = [*series("a", pending={"sentiment": 1e6})]
    hold(deployment, tmp_path, replicas, {pending: 0, load: 10}, 'namespace="a"')
    elsewhere = {"count(trb:pending_batches:mean1m) or vector(0)": 0}
    hold(deployment, tmp_path, replicas, elsewhere, 'namespace="b"')


def test_promtool_takes_the_rules(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "scaling.yml").write_text(scaling.rules(deployment, 'namespace="a", pod=~"bert-.+"'))
    assert "SUCCESS: 6 rules found" in promtool("check", "rules", tmp_path / "scaling.yml")
