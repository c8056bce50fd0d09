"""Two deployments in one Prometheus, also of one name in two namespaces: promtool on synthetic series."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import deployments
from tests.support.deployments import OCI, SCALED, gateway
from tests.support.prometheus import promtool
from triton_repo_builder.ship.targets import export

pytestmark = pytest.mark.prometheus
MINUTES = 20
MODELS = ("sentiment", "sentiment_tokenizer", "sentiment_model")
NAMESPACES = ("production", "staging")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The exports of ``sentiment`` for two namespaces."""
    exports = {}
    for namespace in NAMESPACES:
        tables = f'{gateway()}{SCALED}[kubernetes]\nnamespace = "{namespace}"\n'
        deployment = deployments.read(tmp_path_factory.mktemp(namespace), source=OCI, tables=tables)
        contents = export.render("kubernetes", deployment).contents
        exports[namespace] = {path: text.decode() for path, text in contents.items()}
    return exports


def server(
    namespace: str,
    name: str = "sentiment",
    *,
    models: tuple[str, ...] = MODELS,
    failures: float = 0,
    pending: float = 0,
    version: str = "stable",
    p99: float = 0.02,
) -> Iterator[dict[str, str]]:
    """Series of a server as Prometheus has them by the ServiceMonitor: 10 requests a second."""
    labels = (
        f'job="tritonserver", deployment="{name}", namespace="{namespace}", service="{name}-headless", '
        f'instance="{namespace}-{name}-{version}", rollouts_pod_template_hash="{version}"'
    )
    yield {"series": f"up{{{labels}}}", "values": f"1x{MINUTES}"}
    for model in models:
        one = f'{labels}, model="{model}", version="1"'
        for metric, step in (("request_success", 600 - failures), ("request_failure", 2 * failures)):
            yield {"series": f"nv_inference_{metric}{{{one}}}", "values": f"0+{step:g}x{MINUTES}"}
        gauge = f"nv_inference_pending_request_count{{{one}}}"
        yield {"series": gauge, "values": f"{pending:g}x{MINUTES}"}
        summary = f'nv_inference_request_summary_us{{{one}, quantile="0.99"}}'
        yield {"series": summary, "values": f"{p99 * 1e6:g}x{MINUTES}"}


def hold(
    files: Mapping[str, Mapping[str, str]],
    folder: Path,
    series: list[dict[str, str]],
    values: Mapping[str, Mapping[str, float]],
) -> None:
    """With the rules of all deployments loaded, expressions have these samples, labels → value."""
    names = []
    for namespace, export_ in files.items():
        for path, text in export_.items():
            if "/prometheusrule-" in path:
                name = f"{namespace}-{Path(path).name}.json"
                (folder / name).write_text(json.dumps(yaml.safe_load(text)["spec"]))
                names.append(name)
    checks: list[dict[str, Any]] = [
        {
            "expr": expression,
            "eval_time": f"{MINUTES}m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for expression, samples in values.items()
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": checks}
    document = {"rule_files": names, "evaluation_interval": "1m", "tests": [test]}
    (folder / "tests.json").write_text(json.dumps(document))
    promtool("test", "rules", folder / "tests.json")


FIRING = 'count by (alertname, namespace) (ALERTS{alertstate="firing"})'


def test_another_deployment_in_the_same_prometheus_fires_nothing(
    files: Mapping[str, Mapping[str, str]], tmp_path: Path
) -> None:
    """Its pods serve other models, so to these rules they would be servers that have not loaded them."""
    series = [
        *server("production"),
        *server("staging"),
        *server("production", "other", models=("other",), failures=300),
    ]
    hold(files, tmp_path, series, {FIRING: {}})


def test_what_fails_in_staging_alerts_for_staging_alone(
    files: Mapping[str, Mapping[str, str]], tmp_path: Path
) -> None:
    series = [*server("production"), *server("staging", failures=300)]
    fired = {
        f'{{alertname="{name}", namespace="staging"}}': 1.0
        for name in ("TrbErrors", "TrbBudgetBurnFast", "TrbBudgetBurnSlow")
    }
    rate = 'trb:failures:rate{namespace="%s"} * 1'
    recorded = '{deployment="sentiment", namespace="%s", model="sentiment", version="1"}'
    values = {rate % name: {recorded % name: value} for name, value in zip(NAMESPACES, (0, 5), strict=True)}
    hold(files, tmp_path, series, {FIRING: fired, **values})


def test_a_model_that_staging_has_not_loaded(files: Mapping[str, Mapping[str, str]], tmp_path: Path) -> None:
    series = [*server("production"), *server("staging", models=MODELS[:2])]
    fired = {'{alertname="TrbModelNotReady", namespace="staging"}': 1.0}
    hold(files, tmp_path, series, {FIRING: fired})


def test_a_queue_in_staging_scales_nothing_else(
    files: Mapping[str, Mapping[str, str]], tmp_path: Path
) -> None:
    series = [*server("production"), *server("staging", pending=1e6)]
    asked = {}
    for namespace in NAMESPACES:
        scaled = yaml.safe_load(files[namespace]["components/keda/scaledobject.yaml"])["spec"]
        (trigger,) = scaled["triggers"]
        adapter = yaml.safe_load(files[namespace]["prometheus-adapter.yaml"])["rules"]["external"]
        assert trigger["metadata"]["query"] == adapter[0]["metricsQuery"]
        asked[trigger["metadata"]["query"]] = {"{}": 0.0 if namespace == "production" else 2.6}
    assert len(asked) == 2
    hold(files, tmp_path, series, asked)


def test_a_rollout_is_judged_by_its_own_namespace(
    files: Mapping[str, Mapping[str, str]], tmp_path: Path
) -> None:
    """Both canaries have the same pods' hash."""
    series = [
        *server("production"),
        *server("production", version="latest", p99=0.03),
        *server("staging", failures=300),
        *server("staging", version="latest", failures=300, p99=0.2),
    ]
    analysis = yaml.safe_load(files["production"]["components/rollout/analysis-rules.yaml"])["spec"]
    queries = {each["name"]: each["provider"]["prometheus"]["query"] for each in analysis["metrics"]}
    filled = {
        name: query.replace("{{args.stable-hash}}", "stable").replace("{{args.latest-hash}}", "latest")
        for name, query in queries.items()
    }
    values = {filled["failures"]: {"{}": 0.0}, f"round({filled['p99']}, 0.001)": {"{}": 1.5}}
    hold(files, tmp_path, series, values)


def test_answers_that_drift_in_staging(files: Mapping[str, Mapping[str, str]], tmp_path: Path) -> None:
    series = [*server("production"), *server("staging")]
    for namespace, good in zip(NAMESPACES, (50, 90), strict=True):
        labels = f'deployment="sentiment", namespace="{namespace}", model="sentiment_post", version="1"'
        count = f'{labels}, metric="answers"'
        series.append({"series": f"trb_reference_texts{{{count}}}", "values": f"500x{MINUTES}"})
        for label, step in (("good", good), ("bad", 100 - good)):
            share = f'trb_reference_share{{{count}, bucket="{label}"}}'
            series.append({"series": share, "values": f"0.5x{MINUTES}"})
            counted = f'trb_answers_total{{{labels}, label="{label}"}}'
            series.append({"series": counted, "values": f"0+{step}x{MINUTES}"})
    psi = 'round(trb:drift:psi{metric="answers", window="5m"}, 0.01)'
    found = {
        f'{{deployment="sentiment", namespace="{namespace}", model="sentiment_post", version="1", '
        'metric="answers", window="5m"}': value
        for namespace, value in zip(NAMESPACES, (0, 0.88), strict=True)
    }
    drifted = {'{alertname="TrbDrift", namespace="staging"}': 1.0}
    fired = 'count by (alertname, namespace) (ALERTS{alertname="TrbDrift", window="5m", alertstate="firing"})'
    hold(files, tmp_path, series, {psi: found, fired: drifted})
