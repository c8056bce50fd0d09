"""Each alert of ``trb export monitoring`` on synthetic series, by promtool: it fires, and it does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import serve_repository
from tests.support.prometheus import promtool
from triton_repo_builder import repository
from triton_repo_builder.ship import rendered as rendered_folder
from triton_repo_builder.ship.monitoring import export
from triton_repo_builder.ship.monitoring.rules import Objective, Settings

pytestmark = pytest.mark.prometheus
GOLDEN = Path(__file__).resolve().parents[2] / "model_repository"
SETTINGS = Settings(objective=Objective(share=0.99, seconds=0.05), gateways=("gateway:9000",))
MODELS = ("sentiment", "sentiment_tokenizer", "sentiment_model")
MINUTES = 60
DELAY = 5_000
"""Microseconds that the model's batcher may wait."""
HEALTHY: Mapping[str, float] = {
    "nv_inference_request_success": 600,
    "nv_inference_request_failure": 1,
    "nv_inference_request_duration_us": 600 * 10_000,
    "nv_inference_queue_duration_us": 600 * DELAY,
    "nv_inference_count": 1200,
    "nv_inference_exec_count": 300,
}
"""Increase within a minute: ten requests a second, 10 ms each."""


def world(
    changes: Mapping[str, Mapping[str, float]] | None = None, minutes: int = MINUTES
) -> Iterator[dict[str, str]]:
    """Series of a healthy server and gateway; ``changes`` are other increases, by model."""
    changes = changes or {}
    yield {"series": 'up{job="tritonserver", instance="t"}', "values": f"1x{minutes}"}
    for model in MODELS:
        for name, step in (HEALTHY | changes.get(model, {})).items():
            labels = f'job="tritonserver", instance="t", model="{model}", version="1"'
            yield {"series": f"{name}{{{labels}}}", "values": f"0+{step:g}x{minutes}"}
    for le, step in {"0.025": 500, "0.05": 599, "+Inf": 600, **changes.get("gateway", {})}.items():
        labels = f'job="trb-gateway", instance="g", phase="infer", le="{le}"'
        yield {"series": f"trb_gateway_phase_seconds_bucket{{{labels}}}", "values": f"0+{step}x{minutes}"}
    labels = 'job="trb-gateway", instance="g", phase="infer"'
    yield {"series": f"trb_gateway_phase_seconds_count{{{labels}}}", "values": f"0+600x{minutes}"}
    for status, step in {"200": 600, **changes.get("status", {})}.items():
        labels = f'job="trb-gateway", instance="g", route="/v1/x", model="sentiment", status="{status}"'
        yield {"series": f"trb_gateway_requests_total{{{labels}}}", "values": f"0+{step}x{minutes}"}


def every(model: str = "sentiment", **increases: float) -> dict[str, dict[str, float]]:
    return {model: {f"nv_inference_{name}": step for name, step in increases.items()}}


IDLE = {
    model: {name: step / 20 for name, step in HEALTHY.items()} | {"nv_inference_request_failure": 0}
    for model in MODELS
}
"""Half a request a second, each of which waits as long as the batcher may: no backlog."""
CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "healthy": ({}, set()),
    "idle": (IDLE, set()),
    "errors": (
        every(request_failure=100),
        {"TrbErrors", "TrbBudgetBurnSlow"},
    ),
    "a few errors": (every(request_failure=25), set()),
    "many errors": (every(request_failure=400), {"TrbErrors", "TrbBudgetBurnSlow", "TrbBudgetBurnFast"}),
    "failures of hardly any request": (every(request_success=0, request_failure=0.02), set()),
    "slow on average": (every(request_duration_us=600 * 60_000), {"TrbMeanLatency"}),
    "late at the gateway": (
        {"gateway": {"0.05": 450}},
        {"TrbBudgetBurnSlow", "TrbBudgetBurnFast"},
    ),
    "some late at the gateway": ({"gateway": {"0.05": 550}}, {"TrbBudgetBurnSlow"}),
    "errors of the gateway": ({"status": {"503": 200}}, {"TrbBudgetBurnSlow", "TrbBudgetBurnFast"}),
    "clients' own errors": ({"status": {"422": 200}}, set()),
    "a queue": (every("sentiment_model", queue_duration_us=600 * 40_000), {"TrbQueueExcess"}),
    "a queue within the delay and the objective": (
        every("sentiment_model", queue_duration_us=600 * 25_000),
        set(),
    ),
    "one by one": (
        every("sentiment_model", queue_duration_us=12_000 * 12_000, request_success=12_000, exec_count=1200),
        {"TrbNotBatching"},
    ),
    "one by one without a queue": (every("sentiment_model", exec_count=1200), set()),
}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files for the golden repository, and a delay of its batcher."""
    root = tmp_path_factory.mktemp("rules")
    repo = shutil.copytree(GOLDEN, root / "model_repository")
    config = repo / "sentiment_model" / "config.pbtxt"
    delayed = f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY} }}"
    config.write_text(config.read_text().replace("dynamic_batching { }", delayed))
    (repo / "sentiment_tokenizer" / "1" / "metrics.py").touch()
    rendered_folder.write(export.render(repository.read(repo), SETTINGS), root / "monitoring")
    return root / "monitoring"


def run(folder: Path, tests: list[dict[str, Any]]) -> None:
    file = folder / "tests.json"
    names = [str(path) for path in folder.glob("*.yml") if path.name != "prometheus.yml"]
    file.write_text(json.dumps({"rule_files": names, "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", file)


def firing(series: list[dict[str, str]], alerts: set[str], at: str = f"{MINUTES - 5}m") -> dict[str, Any]:
    """A test that exactly these alerts fire."""
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)]
    expression = 'group by (alertname) (ALERTS{alertstate="firing"})'
    check = {"expr": expression, "eval_time": at, "exp_samples": samples}
    return {"interval": "1m", "input_series": series, "promql_expr_test": [check]}


@pytest.mark.parametrize("name", CASES)
def test_exactly_the_right_alerts_fire(rules: Path, name: str) -> None:
    changes, alerts = CASES[name]
    run(rules, [firing([*world(changes)], alerts)])


def test_a_server_that_is_away_fires_one_alert(rules: Path) -> None:
    series = [{"series": 'up{job="tritonserver", instance="t"}', "values": f"0x{MINUTES}"}]
    run(rules, [firing(series, {"TrbServerDown"})])


def test_a_model_that_is_not_loaded_fires_after_two_minutes(rules: Path) -> None:
    without = [each for each in world() if "sentiment_model" not in each["series"]]
    none = [
        each for each in world() if 'model="sentiment' not in each["series"] or "gateway" in each["series"]
    ]
    loaded = firing(without, set(), "1m")
    run(rules, [loaded, firing(without, {"TrbModelNotReady"}), firing(none, {"TrbModelNotReady"})])


@pytest.mark.slow
def test_a_short_burst_alerts_nobody(rules: Path) -> None:
    """One bad minute in an hour."""
    series = [
        each | {"values": "0x200 0+300x1 300x38"}
        if 'nv_inference_request_failure{job="tritonserver", instance="t", model="sentiment",'
        in each["series"]
        else each
        for each in world(minutes=240)
    ]
    run(rules, [firing(series, set(), f"{minute}m") for minute in (203, 206, 210, 230)])


def test_the_text_of_an_alert_has_its_numbers(rules: Path) -> None:
    expected = {
        "exp_labels": {"severity": "page", "model": "sentiment", "version": "1"},
        "exp_annotations": {
            "summary": "25% of requests to sentiment fail",
            "description": "Version 1. See 'Failures by reason' in the dashboard 'Serving'.",
        },
    }
    check = {"eval_time": "60m", "alertname": "TrbErrors", "exp_alerts": [expected]}
    series = [*world(every(request_failure=400))]
    run(rules, [{"interval": "1m", "input_series": series, "alert_rule_test": [check]}])


def test_promtool_takes_the_files_of_any_repository(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    serve_repository.whole(repo)
    for name in ("a.b,c", "pipe|d", 'quo"te', "{{ .Value }}", "ü"):
        serve_repository.python(repo, name)
    addresses = ("a:8002", "[::1]:8002")
    settings = replace(SETTINGS, targets=addresses, alertmanagers=addresses, window="90s")
    rendered_folder.write(export.render(repository.read(repo), settings), tmp_path / "out")
    assert "SUCCESS" in promtool("check", "config", tmp_path / "out" / "prometheus.yml")
