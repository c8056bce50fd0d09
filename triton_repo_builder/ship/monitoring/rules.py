"""Recording and alert rules of Prometheus, as data.

A request counts as bad if it failed or came later than the objective's limit. Triton 24.10 has no histogram
of latencies: late requests are counted by the gateway, and for the steps of an endpoint by their own
``trb_phase_seconds``. Everything else is a ratio of Triton's counters, which are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from triton_repo_builder.run.observe import drift_rules
from triton_repo_builder.ship.monitoring.source import Source, pattern

SERVER, GATEWAY, PROXY = "tritonserver", "trb-gateway", "traefik"
"""Jobs of prometheus.yml."""
BURN_WINDOWS = (("fast", "5m", "1h", 14.4, "page"), ("slow", "30m", "6h", 6.0, "ticket"))
"""Name, both windows, times the budget's speed, severity: https://sre.google/workbook/alerting-on-slos/."""
LARGEST_SHARE = 0.9
"""Share of bad requests that alerts at the latest: a large budget cannot burn 14.4 times as fast."""
FAILED = 0.05
"""Share of failed requests that alerts."""
FEW = 3
"""Failures within the window below which the share says nothing."""
LEAST = 10
"""Requests within a window below which a share of them says nothing."""
WAITING = 2
"""Requests that wait on average while a batcher that joins none runs them one by one."""
ROWS = 1.2
"""Rows of an execution, on average, that count as no batch."""
GATEWAY_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets of ``trb_gateway_phase_seconds``: ``run/gateway/metrics.py``, which needs prometheus-client."""
PHASE_SECONDS = GATEWAY_SECONDS[1:12]
"""Buckets of ``trb_phase_seconds`` that a limit of latency may fall on: ``runtime/metrics.py``."""
_FAILURES = "nv_inference_request_failure"
_MODEL = "sum by (model, version)"
_REPLICA = "sum by (instance, model, version)"


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Share of requests that must be answered within some seconds."""

    share: float
    seconds: float

    @property
    def budget(self) -> float:
        """Share of requests that may be bad."""
        return round(1 - self.share, 6)

    def __str__(self) -> str:
        return f"{self.share * 100:g} % of requests within {self.seconds * 1000:g} ms"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The objective, the window of rates, what is scraped, and where alerts go."""

    objective: Objective
    window: str = "5m"
    drift_window: str = drift_rules.WINDOW
    targets: tuple[str, ...] = ("localhost:8002",)
    gateways: tuple[str, ...] = ()
    gateway_key: str = ""
    """File with an API key of the gateways, as Prometheus reads it; empty: they ask for none."""
    proxies: tuple[str, ...] = ()
    alertmanagers: tuple[str, ...] = ()
    commit: str = ""
    """The last commit that changed the repository; empty outside of git."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A recording rule, or an alert if ``summary`` is set."""

    name: str
    expression: str
    labels: Mapping[str, str] = field(default_factory=dict)
    wait: str = ""
    summary: str = ""
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rules that are evaluated one after the other."""

    name: str
    rules: tuple[Rule, ...]


def groups(source: Source, settings: Settings) -> tuple[Group, ...]:
    """All rules but drift's, in the order of the file."""
    return (
        Group(name="trb_requests", rules=tuple(_requests(source, settings.window))),
        Group(name="trb_steps", rules=tuple(_steps(source, settings.window))),
        Group(name="trb_objective", rules=tuple(_objective(source, settings))),
        Group(name="trb_alerts", rules=tuple(_alerts(source, settings))),
    )


def served(source: Source) -> str:
    """A label matcher of the endpoints."""
    return of(each.name for each in source.endpoints)


def failures(source: Source, by: str, window: str, matchers: str = "") -> str:
    """Failed requests a second. tritonserver counts an ensemble's failures twice (24.10 to 26.06)."""
    ensembles = [each.name for each in source.endpoints if each.models[1:]]
    others = [each.name for each in source.endpoints if not each.models[1:]]
    parts = [
        f"sum by ({by}) ({_rate(_FAILURES, f'{matchers}{of(names)}', window)}){times}"
        for names, times in ((ensembles, " / 2"), (others, ""))
        if names
    ]
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def of(names: Iterable[str]) -> str:
    """A label matcher of these models."""
    return f'model=~"{pattern(names)}"'


def _rate(metric: str, matchers: str, window: str) -> str:
    return f"rate({metric}{{{matchers}}}[{window}])"


def _requests(source: Source, window: str) -> Iterator[Rule]:
    """Requests of the endpoints, over all servers."""
    matchers = served(source)
    success = f"{_MODEL} ({_rate('nv_inference_request_success', matchers, window)})"
    failure = failures(source, "model, version", window)
    duration = f"{_MODEL} ({_rate('nv_inference_request_duration_us', matchers, window)})"
    yield Rule(name="trb:failures:rate", expression=failure)
    yield Rule(name="trb:requests:rate", expression=f"{success}\n  + trb:failures:rate")
    yield Rule(name="trb:failures:ratio", expression="trb:failures:rate / (trb:requests:rate > 0)")
    yield Rule(name="trb:latency_seconds:mean", expression=f"{duration}\n  / ({success} > 0) / 1e6")


def _steps(source: Source, window: str) -> Iterator[Rule]:
    """Queue and batches of the models that run, on each server: an ensemble queues nothing itself."""
    names = [name for each in source.endpoints for name in each.models[1:] or each.models]
    matchers = of(dict.fromkeys(names))
    success, queue, rows, runs = (
        f"{_REPLICA} ({_rate(f'nv_inference_{metric}', matchers, window)})"
        for metric in ("request_success", "queue_duration_us", "count", "exec_count")
    )
    yield Rule(name="trb:waiting_requests:mean", expression=f"{queue} / 1e6")
    yield Rule(name="trb:queue_seconds:mean", expression=f"{queue}\n  / ({success} > 0) / 1e6")
    excess = "trb:queue_seconds:mean"
    delays = {model: delay for model, delay in source.batching.items() if delay}
    for model, delay in delays.items():
        labels = {"model": model}
        yield Rule(name="trb:queue_delay_seconds", expression=f"vector({delay:g})", labels=labels)
    if delays:
        intended = "on (model) group_left () trb:queue_delay_seconds"
        excess = f"(\n    {excess} - {intended}\n    or {excess}\n  )"
    yield Rule(name="trb:queue_excess_seconds:mean", expression=f"clamp_min({excess}, 0)")
    yield Rule(name="trb:executed_rows:mean", expression=f"{rows}\n  / ({runs} > 0)")


def _objective(source: Source, settings: Settings) -> Iterator[Rule]:
    """Bad requests over each window, by the way they are measured (``sli``)."""
    limit = settings.objective.seconds
    for _, short, long, _, _ in BURN_WINDOWS:
        for window in (short, long):
            for sli, expression in _bad(source, settings, window, limit):
                yield Rule(name=f"trb:bad:ratio_rate{window}", expression=expression, labels={"sli": sli})


def _bad(source: Source, settings: Settings, window: str, limit: float) -> Iterator[tuple[str, str]]:
    matchers = served(source)
    success = f"{_MODEL} ({_rate('nv_inference_request_success', matchers, window)})"
    failure = failures(source, "model, version", window)
    least = f"{LEAST} / {seconds(window):g}"
    yield "failed", f"{failure}\n  / (({success} + {failure}) > {least})"
    bucket = smallest(PHASE_SECONDS, limit)
    if source.counting and bucket:
        by = "sum by (model, version, phase)"
        yield "slow_step", _late(by, "trb_phase_seconds", of(source.timed), bucket, window)
    if not settings.gateways:
        return
    requests = "trb_gateway_requests_total"
    answered = f"sum by (model) ({_rate(requests, matchers, window)})"
    refused = f'{matchers}, status=~"5.."'
    # A status that never occurred has no series.
    errors = f"sum by (model) ({_rate(requests, refused, window)})"
    yield "gateway_failed", f"({errors} or 0 * {answered})\n  / ({answered} > {least})"
    bucket = smallest(GATEWAY_SECONDS, limit)
    if bucket:
        yield (
            "gateway_slow",
            _late("sum", "trb_gateway_phase_seconds", 'phase="infer"', bucket, window),
        )


def smallest(buckets: tuple[float, ...], limit: float) -> float:
    """The smallest bucket that holds all that is in time; 0 if a limit is beyond the last."""
    return next((bucket for bucket in buckets if bucket >= limit), 0)


def _late(by: str, metric: str, matchers: str, bucket: float, window: str) -> str:
    """Share of a histogram's values above a bucket."""
    # Clients write a whole number as 1 or 1.0; Prometheus 3 stores 1.0.
    bound = f'le=~"{bucket:g}([.]0)?"' if bucket == int(bucket) else f'le="{bucket:g}"'
    below = f"{by} ({_rate(f'{metric}_bucket', f'{matchers}, {bound}', window)})"
    least = f"{LEAST} / {seconds(window):g}"
    return f"1 - {below}\n  / ({by} ({_rate(f'{metric}_count', matchers, window)}) > {least})"


def _alerts(source: Source, settings: Settings) -> Iterator[Rule]:
    yield Rule(
        name="TrbServerDown",
        expression=f'up{{job="{SERVER}"}} == 0',
        labels={"severity": "page"},
        wait="1m",
        summary="Prometheus does not reach the metrics of {{ $labels.instance }}",
        description="The server is down, or its metrics port is closed.",
    )
    yield from _not_ready(source)
    yield Rule(
        name="TrbErrors",
        expression=f"trb:failures:ratio > {FAILED:g}\n"
        f"  and trb:failures:rate * {seconds(settings.window):g} >= {FEW}",
        labels={"severity": "page"},
        wait="5m",
        summary="{{ $value | humanizePercentage }} of requests to {{ $labels.model }} fail",
        description="Version {{ $labels.version }}. See 'Failures by reason' in the dashboard 'Serving'.",
    )
    yield from _burn(settings.objective)
    yield Rule(
        name="TrbMeanLatency",
        expression=f"trb:latency_seconds:mean > {settings.objective.seconds:g}",
        labels={"severity": "page"},
        wait="5m",
        summary="{{ $labels.model }} takes {{ $value | humanizeDuration }} on average",
        description=f"Version {{{{ $labels.version }}}}. The objective: {settings.objective}. Measured by "
        "Triton from the arrival of a request to its answer, queue included.",
    )
    yield from _capacity(source, settings.objective)


def _not_ready(source: Source) -> Iterator[Rule]:
    """An alert for each endpoint: a server has series of each model that it has loaded."""
    for each in source.endpoints:
        series = f'nv_inference_request_success{{job="{SERVER}", model=~"{pattern(each.models)}"}}'
        # A template of an alert does not see the labels of its rule.
        name = each.name.replace("{{", "{ {")
        loaded = f"count by (instance) (count by (instance, model) ({series})) == {len(each.models)}"
        yield Rule(
            name="TrbModelNotReady",
            expression=f'up{{job="{SERVER}"}} == 1\n  unless on (instance) ({loaded})',
            labels={"severity": "page", "model": each.name},
            wait="2m",
            summary=f"{{{{ $labels.instance }}}} does not serve {name}",
            description="The endpoint, or one of its steps, is not loaded there: see the server's log, and "
            "GET /v2/repository/index.",
        )


def _burn(objective: Objective) -> Iterator[Rule]:
    for name, short, long, speed, severity in BURN_WINDOWS:
        share = min(speed * objective.budget, LARGEST_SHARE)
        yield Rule(
            name=f"TrbBudgetBurn{name.title()}",
            expression=f"trb:bad:ratio_rate{short} > {share:g}\n  and trb:bad:ratio_rate{long} > {share:g}",
            labels={"severity": severity},
            wait="1m",
            summary=f"{{{{ $value | humanizePercentage }}}} of the last {short} is bad: "
            "{{ $labels.sli }} {{ $labels.model }}",
            description=f"The objective: {objective}. Its budget of {objective.budget * 100:g} % burns "
            f"{share / objective.budget:.3g} times too fast, over {short} and {long}. sli failed: Triton "
            "answered with an error. slow_step: executions of one step took longer than the limit. "
            "gateway_failed, gateway_slow: as the gateway's clients see it.",
        )


def _capacity(source: Source, objective: Objective) -> Iterator[Rule]:
    yield Rule(
        name="TrbQueueExcess",
        expression=f"trb:queue_excess_seconds:mean > {objective.seconds / 2:g}",
        labels={"severity": "ticket"},
        wait="10m",
        summary="Requests wait {{ $value | humanizeDuration }} for {{ $labels.model }}",
        description="On {{ $labels.instance }}, beyond the delay of its batcher: more than half of the "
        f"objective's limit ({objective.seconds * 1000:g} ms). Add instances or servers: trb tune, trb plan.",
    )
    if not source.batching:
        return
    matchers = of(source.batching)
    yield Rule(
        name="TrbNotBatching",
        expression=f"trb:executed_rows:mean{{{matchers}}} < {ROWS:g}\n"
        f"  and trb:waiting_requests:mean > {WAITING}",
        labels={"severity": "ticket"},
        wait="10m",
        summary="{{ $labels.model }} runs {{ $value | humanize }} rows at a time while requests wait",
        description="Its batcher joins no requests on {{ $labels.instance }}: their shapes differ, or each "
        "instance takes them one by one. See trb check, and docs/index.md, 'My model does not batch'.",
    )


def seconds(window: str) -> float:
    """Seconds of a duration such as 5m, 1h or 30s."""
    return float(window[:-1]) * {"s": 1, "m": 60, "h": 3600}[window[-1]]
