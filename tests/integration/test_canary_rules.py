"""The canary's rules in PromQL, by promtool on synthetic series: the same numbers as trb canary computes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.prometheus import promtool
from triton_repo_builder.repository import reference
from triton_repo_builder.run.observe import drift
from triton_repo_builder.ship.targets import canary_rules, facts, spec
from triton_repo_builder.ship.targets.canary_rules import Sides
from triton_repo_builder.ship.targets.facts import Deployment

pytestmark = pytest.mark.prometheus
GOLDEN = Path(__file__).resolve().parents[2] / "model_repository"
SIDES = Sides(stable='service="bert"', canary='service="bert-canary"')
MINUTES = 12
GOT = re.compile(r'expr: "canary:(\w+)".*?\n.*?exp:.*?\n.*?got:(.*)')
Increases = Mapping[str, float]
"""Series with their increase within a minute."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    folder = tmp_path_factory.mktemp("deployment")
    key = folder / "admin_key"
    key.write_text("a-key-of-the-administrative-apis\n")
    key.chmod(0o600)
    file = folder / "deploy.toml"
    file.write_text(
        f'name = "bert"\n[repository]\npath = "{GOLDEN}"\n[exposure]\nadmin_key = "{key}"\n', encoding="utf-8"
    )
    return facts.read(file, spec.read(file))


def side(
    name: str,
    *,
    requests: float = 60,
    failures: float = 0,
    p99: float = 20,
    labels: Increases | None = None,
    lengths: Increases | None = None,
) -> dict[str, float]:
    """One side's series; ``p99`` in milliseconds, of the slower of two replicas."""
    common = f'service="{name}",pod="{name}-0"'
    endpoint = f'model="sentiment",version="1",{common}'
    series = {
        f"nv_inference_request_success{{{endpoint}}}": requests - failures,
        # tritonserver counts an ensemble's failures twice.
        f'nv_inference_request_failure{{{endpoint},reason="BACKEND"}}': 2 * failures,
        f'nv_inference_request_summary_us{{{endpoint},quantile="0.99"}}': p99 * 1000,
        f'nv_inference_request_summary_us{{{endpoint.replace("-0", "-1")},quantile="0.99"}}': p99 * 500,
    }
    for label, count in (labels or {"good": 50, "bad": 50}).items():
        series[f'trb_answers_total{{model="sentiment_post",version="1",label="{label}",{common}}}'] = count
    total = 0.0
    for bound in reference.buckets(reference.TEXT_TOKENS):
        total += (lengths or {"8": 40, "16": 60}).get(bound, 0.0)
        # Servers write whole bounds as 4, Prometheus 3 stores them as 4.0.
        shown = f"{bound}.0" if name.endswith("canary") and bound.isdecimal() else bound
        series[f'trb_text_tokens_bucket{{model="sentiment_tokenizer",version="1",le="{shown}",{common}}}'] = (
            total
        )
    return series


def values(
    tmp_path: Path, deployment: Deployment, increases: Increases, idle: bool = False
) -> dict[str, float | None]:
    """Value of each rule after twelve minutes; None without a result. promtool fails at other numbers."""
    queries = canary_rules.queries(deployment, SIDES, window="10m", requests=100)
    rules = {
        "groups": [
            {
                "name": "canary",
                "rules": [
                    {"record": f"canary:{query.rule.name}", "expr": f"max({query.value})"}
                    for query in queries
                ],
            }
        ]
    }
    (tmp_path / "rules.yml").write_text(json.dumps(rules))
    series = [
        {
            "series": name,
            "values": f"{step:g}x{MINUTES - 1} {'NaN' if idle else f'{step:g}'}"
            if "summary" in name
            else f"0+{step:g}x{MINUTES}",
        }
        for name, step in increases.items()
    ]
    # promtool prints what it got where it expected something else: numbers that it cannot be.
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f"canary:{query.rule.name}",
                        "eval_time": f"{MINUTES}m",
                        "exp_samples": [{"labels": f"canary:{query.rule.name}", "value": -12345}],
                    }
                    for query in queries
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    with pytest.raises(AssertionError) as caught:
        promtool("test", "rules", tmp_path / "test.yml")
    told = str(caught.value)
    found = dict(GOT.findall(told))
    assert found.keys() == {query.rule.name for query in queries}, told
    return {name: None if "nil" in text else float(text.split()[-1]) for name, text in found.items()}


def test_equal_sides(tmp_path: Path, deployment: Deployment) -> None:
    found = values(tmp_path, deployment, side("bert") | side("bert-canary"))
    assert found["failures"] == pytest.approx(0.0)
    assert found["p99"] == pytest.approx(1.0)
    assert found["labels"] == pytest.approx(0.0, abs=1e-9)
    assert found["answers"] is None  # no gateway with a shadow


def test_a_worse_canary(tmp_path: Path, deployment: Deployment) -> None:
    worse = side("bert-canary", failures=6, p99=40, labels={"good": 90, "bad": 10})
    shadow: dict[str, float] = {
        'trb_shadow_answers_total{endpoint="sentiment",agreement="same"}': 90,
        'trb_shadow_answers_total{endpoint="sentiment",agreement="different"}': 10,
    }
    found = values(tmp_path, deployment, side("bert", failures=0.6) | worse | shadow)
    assert found["failures"] == pytest.approx(0.1 - 0.01, rel=0.05)
    assert found["p99"] == pytest.approx(2.0)
    assert found["labels"] == pytest.approx(
        drift.psi({"good": 0.5, "bad": 0.5}, {"good": 0.9, "bad": 0.1}), rel=1e-3
    )
    assert found["answers"] == pytest.approx(0.1)


def test_lengths_and_labels_that_one_side_lacks(tmp_path: Path, deployment: Deployment) -> None:
    longer = side("bert-canary", lengths={"16": 10, "32": 90})
    found = values(tmp_path, deployment, side("bert") | longer)
    assert found["labels"] == pytest.approx(
        drift.psi({"8": 0.4, "16": 0.6}, {"16": 0.1, "32": 0.9}), rel=1e-3
    )
    other = side("bert-canary", labels={"good": 50, "awful": 50})
    found = values(tmp_path, deployment, side("bert") | other)
    assert found["labels"] == pytest.approx(
        drift.psi({"good": 0.5, "bad": 0.5}, {"good": 0.5, "awful": 0.5}), rel=1e-3
    )


def test_a_canary_that_always_fails_has_enough_requests(tmp_path: Path, deployment: Deployment) -> None:
    found = values(tmp_path, deployment, side("bert") | side("bert-canary", failures=60))
    assert found["failures"] == pytest.approx(1.0)


def test_few_requests_say_nothing(tmp_path: Path, deployment: Deployment) -> None:
    """Below ``requests`` there is no result, so a rule on it neither fails nor passes."""
    few = values(tmp_path, deployment, side("bert") | side("bert-canary", requests=5))
    assert few["failures"] is few["p99"] is few["labels"] is None
    none = values(tmp_path, deployment, side("bert"))
    assert none["failures"] is none["p99"] is none["labels"] is None


def test_a_minute_without_requests_hides_no_latency(tmp_path: Path, deployment: Deployment) -> None:
    """Triton's summary is NaN as soon as its last minute had no request."""
    found = values(tmp_path, deployment, side("bert") | side("bert-canary", p99=30), idle=True)
    assert found["p99"] == pytest.approx(1.5)


def test_no_latencies_are_no_result(tmp_path: Path, deployment: Deployment) -> None:
    """Of a server without summaries: an analysis of p99 must not take that for a pass."""
    both = side("bert") | side("bert-canary")
    found = values(tmp_path, deployment, {name: step for name, step in both.items() if "summary" not in name})
    assert found["p99"] is None and found["failures"] == pytest.approx(0.0)


def test_limits_are_those_of_the_file(deployment: Deployment) -> None:
    limits: dict[str, Any] = {rule.name: rule.limit for rule in canary_rules.of(deployment.spec.canary.rules)}
    assert limits == {"failures": 0.01, "p99": 1.3, "labels": 0.25, "answers": 0.02}
    by_name = {rule.name: rule for rule in canary_rules.of(deployment.spec.canary.rules)}
    assert by_name["p99"].value(0.0, 0.1) == float("inf")
    assert by_name["p99"].value(0.0, 0.0) == 1.0
    assert by_name["failures"].value(0.1, 0.3) == pytest.approx(0.2)
