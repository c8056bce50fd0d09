"""Every query of every rule and panel, run by a real Prometheus on a server and a gateway under load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import traffic
from tests.support.cli import trb
from tests.support.prometheus import Prometheus, panel_queries, running, selectors
from tests.support.serve_repository import until
from triton_repo_builder.measure.bench.load import texts
from triton_repo_builder.run import serve
from triton_repo_builder.ship.monitoring import rules

pytestmark = [pytest.mark.prometheus, pytest.mark.server, pytest.mark.gateway]
SECONDS = 6.0


@pytest.fixture(scope="module")
def monitoring(
    server: serve.RunningServer, repository: Path, gateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What a user's command writes."""
    output = tmp_path_factory.mktemp("monitoring") / "monitoring"
    metrics = server.urls.metrics.removeprefix("http://").removesuffix("/metrics")
    arguments = ("--target", metrics, "--gateway", gateway.removeprefix("http://"), "--output", output)
    trb("export", "monitoring", repository, *arguments)
    return output


@pytest.fixture(scope="module")
def prometheus(
    monitoring: Path, server: serve.RunningServer, repository: Path, gateway: str
) -> Iterator[Prometheus]:
    """Prometheus, after some seconds of load."""
    with running(monitoring / "prometheus.yml") as prometheus:
        embed(gateway, 1)  # a counter with labels begins with its first request
        until(lambda: prometheus.query('trb_gateway_requests_total{model="minilm"}'))
        embed(gateway, 2 * rules.LEAST)
        assert traffic.send(server.urls.http, repository, SECONDS) > 100
        last = f"trb:bad:ratio_rate{rules.BURN_WINDOWS[-1][2]}"
        until(lambda: prometheus.query(f'{last}{{sli="gateway_failed"}}'))
        until(lambda: prometheus.query("trb:drift:psi"))
        yield prometheus


def embed(gateway: str, times: int) -> None:
    """Requests to the gateway that it answers, and that it refuses."""
    with httpx.Client(base_url=gateway, timeout=60) as client:
        for number in range(times):
            for model in ("minilm", "missing"):
                client.post("/v1/embeddings", json={"model": model, "input": f"hello fox {number} ☃"})
        client.post("/v1/embeddings", json={"model": "minilm", "input": [*texts.corpus(None)]})


def test_every_rule_has_data(prometheus: Prometheus) -> None:
    listed = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(listed) > 30
    assert [(rule["name"], rule.get("lastError")) for rule in listed if rule["health"] != "ok"] == []
    # Drift's rules have data for what has a reference: the panel of PSI shows that.
    ours = [rule for rule in listed if "drift" not in rule["query"] + rule["name"].lower()]
    recording = {rule["query"] for rule in ours if rule["type"] == "recording"}
    alerts = {
        selector for rule in ours if rule["type"] == "alerting" for selector in selectors(rule["query"])
    }
    empty = [query for query in sorted(recording | alerts) if not prometheus.query(query)]
    assert empty == []


@pytest.mark.parametrize("name", ["serving", "contents", "gateway"])
def test_every_panel_has_data(prometheus: Prometheus, monitoring: Path, name: str) -> None:
    board = json.loads((monitoring / "grafana" / f"{name}.json").read_text())
    queries = [*panel_queries(board)]
    assert len(queries) > 4
    assert [(title, query) for title, query in queries if not prometheus.query(query)] == []


def test_a_server_under_load_has_no_alert(prometheus: Prometheus) -> None:
    assert prometheus.query('ALERTS{alertname=~"TrbServerDown|TrbModelNotReady"}') == []
    names = [alert["annotations"]["summary"] for alert in prometheus.get("alerts")["alerts"]]
    assert not [name for name in names if "error" in name]


def test_the_versions_that_grafana_lists_are_those_of_the_server(
    prometheus: Prometheus, monitoring: Path
) -> None:
    board = json.loads((monitoring / "grafana" / "serving.json").read_text())
    variable = next(v for v in board["templating"]["list"] if v["name"] == "version")
    assert variable["query"]["query"].startswith("label_values(nv_inference_count{")
    assert prometheus.get("label/version/values", **{"match[]": "nv_inference_count"}) == ["1"]
