"""The autoscaling rule of a deployment: its targets, its PromQL, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import tuned_deployments as deployments
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.capacity import limit, scaling_rules
from triton_repo_builder.ship.targets import scaling
from triton_repo_builder.ship.targets.facts import Deployment

SCALED = 'objective = "p99=200ms"\n[autoscaling]\nleast = 2\nmost = 9\n'
REPORTED = SCALED + 'report = "report.json"\n'


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    root = tmp_path_factory.mktemp("reported")
    deployments.report(root / "report.json")
    return deployments.deployment(root, REPORTED)


def test_without_a_most_nothing_scales(tmp_path: Path) -> None:
    assert scaling.scaling(deployments.deployment(tmp_path)) is None


def test_both_targets_come_from_the_report(reported: Deployment) -> None:
    rule = scaling.scaling(reported)
    capacity = reported.capacity
    assert rule and capacity and capacity.service
    found = limit.limit(capacity.service, reported.spec.objective, capacity.per_second)
    assert found is not None
    pending, load = rule.metrics
    assert pending.target == pytest.approx(max(0.05, found.pending), rel=0.05)
    assert load.target == pytest.approx(0.6 * found.per_second, rel=0.05)
    assert 0.6 * 40 < load.target < 0.6 * 91
    assert (rule.least, rule.most, rule.window) == (2, 9, 300)


def test_the_targets_do_not_depend_on_chance(reported: Deployment) -> None:
    assert scaling.scaling(reported) == scaling.scaling(reported)


def test_a_stated_number_of_batches_overrides_the_report(tmp_path: Path) -> None:
    deployments.report(tmp_path / "report.json")
    rule = scaling.scaling(deployments.deployment(tmp_path, REPORTED + "pending_batches = 1.5\n"))
    assert rule and rule.metrics[0].target == 1.5
    assert [metric.name for metric in rule.metrics] == ["pending-batches", "load"]


def test_without_a_report_replicas_are_removed_one_window_apart(tmp_path: Path) -> None:
    text = SCALED + 'pending_batches = 2\nwindow = "10m"\n'
    rule = scaling.scaling(deployments.deployment(tmp_path, text))
    assert rule and [(metric.name, metric.target) for metric in rule.metrics] == [("pending-batches", 2)]
    assert (rule.down_percent, rule.down_seconds) == (10, 600)


def test_a_replica_counts_at_most_twice_the_target(reported: Deployment) -> None:
    rule = scaling.scaling(reported)
    assert rule
    capped = re.search(r", ([\d.]+)\)\)$", rule.metrics[0].query)
    assert capped and float(capped[1]) == pytest.approx(2 * rule.metrics[0].target, rel=0.06)


def test_each_model_with_a_queue_has_its_rules_and_the_ensemble_has_none(reported: Deployment) -> None:
    (group,) = scaling.groups(reported)
    assert [rule.name for rule in group.rules] == [scaling.LOAD, scaling.EXCESS, scaling.PENDING] * 2
    models = {match for rule in group.rules for match in re.findall(r'model=~"(\w+)"', rule.expression)}
    assert models == {"sentiment_model", "sentiment_tokenizer"}
    names = [(rule.name, *sorted(rule.labels.items())) for rule in group.rules]
    assert len(set(names)) == len(names) and {rule.labels["deployment"] for rule in group.rules} == {"bert"}
    batches = {batcher.model: batcher.batch_of_replica for batcher in reported.batchers}
    pending = {
        model: int(rule.expression.rpartition(" / ")[2])
        for rule in group.rules
        for model in batches
        if rule.name == scaling.PENDING and f'"{model}"' in rule.expression
    }
    assert pending == batches


def test_labels_that_separate_deployments_are_in_every_selector(reported: Deployment) -> None:
    (group,) = scaling.groups(reported, 'namespace="a"')
    for rule in group.rules:
        selectors = re.findall(r"nv_\w+\{([^}]*)\}", rule.expression)
        assert selectors and all(selector.endswith(', namespace="a"') for selector in selectors)


def refusal(root: Path, text: str) -> TrbError:
    with pytest.raises(TrbError) as caught:
        scaling.scaling(deployments.deployment(root, text))
    assert caught.value.code is Code.USAGE
    return caught.value


def test_an_objective_without_a_capacity_names_the_command(tmp_path: Path) -> None:
    error = refusal(tmp_path, SCALED)
    assert "neither 'report' nor 'pending_batches'" in error.message
    assert "trb tune --slo p99=200ms" in error.remedy


def test_an_objective_that_no_setting_meets(tmp_path: Path) -> None:
    deployments.report(tmp_path / "report.json")
    error = refusal(tmp_path, REPORTED.replace("200ms", "150ms"))
    assert "no setting" in error.message and "p99 within 150 ms" in error.message


def test_an_objective_that_not_even_an_idle_replica_meets(tmp_path: Path) -> None:
    entry = {"name": "best", "capacity": 90.0, "latency_ms": 1.0}
    deployments.report(tmp_path / "report.json", compared=[entry])
    assert "an idle replica takes longer" in refusal(tmp_path, REPORTED.replace("200ms", "10ms")).message


def test_a_report_of_another_model(tmp_path: Path) -> None:
    file = deployments.report(tmp_path / "report.json")
    file.write_text(file.read_text().replace("sentiment_model", "sleeper"))
    error = refusal(tmp_path, REPORTED)
    assert "measured 'sleeper' with" in error.message and "no such model" in error.message


def test_a_report_of_another_setting(tmp_path: Path) -> None:
    file = deployments.report(tmp_path / "report.json")
    file.write_text(file.read_text().replace('"max_batch": 32', '"max_batch": 8'))
    error = refusal(tmp_path, REPORTED)
    assert "batches up to 8; the repository has" in error.message and "--write" in error.remedy


def test_a_report_without_service_times(tmp_path: Path) -> None:
    (tmp_path / "capacities.csv").write_text("name,per_second,p99_ms\nbert,90,180\n")
    csv = SCALED + 'report = "capacities.csv"\n'
    assert "no time of each batch size" in refusal(tmp_path, csv).message
    rule = scaling.scaling(deployments.deployment(tmp_path, csv + "pending_batches = 1\n"))
    assert rule and len(rule.metrics) == 1


def test_a_window_that_kubernetes_refuses(tmp_path: Path) -> None:
    assert "3600 s at most" in refusal(tmp_path, SCALED + 'pending_batches = 1\nwindow = "2h"\n').message


def test_the_export_and_the_simulation_have_the_same_pace(reported: Deployment) -> None:
    rule, capacity = scaling.scaling(reported), reported.capacity
    assert rule and capacity and capacity.service
    found = limit.Limit(per_second=80, pending_batches={"m": 1.0})
    simulated = scaling_rules.ours(capacity.service, found)
    assert (simulated.up_percent, simulated.up_seconds) == (rule.up_percent, rule.up_seconds)
    assert (simulated.down_percent, simulated.down_seconds) == (rule.down_percent, rule.down_seconds)
    assert simulated.window == rule.window and simulated.up_pods == 0
