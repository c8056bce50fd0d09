"""The autoscaling rule: what Prometheus records, and at which value HPA and KEDA add replicas.

HPA and KEDA compute ``replicas = ceil(sum over all replicas / target)`` for each metric with an average
value, and take the highest result:
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from triton_repo_builder.base import templates
from triton_repo_builder.measure.capacity import scaling_rules
from triton_repo_builder.measure.capacity.limit import Limit
from triton_repo_builder.ship.monitoring import scope
from triton_repo_builder.ship.monitoring.rules import Group, Rule, of
from triton_repo_builder.ship.targets.facts import Batcher, Deployment
from triton_repo_builder.ship.targets.spec import wrong

WINDOW = "1m"
"""Window of rates and averages: four scrapes of 15 s."""
LONGEST_WINDOW, LONGEST_PERIOD = 3600, 1800
"""Largest ``stabilizationWindowSeconds`` and ``periodSeconds`` that Kubernetes takes."""
PENDING, EXCESS, LOAD = (
    "trb:pending_batches:mean1m",
    "trb:queue_excess_seconds:mean1m",
    "trb:replica_requests:rate1m",
)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that an autoscaler asks Prometheus for."""

    name: str
    """A name for adapters and triggers: ``pending-batches``, ``load``."""
    help: str
    query: str
    """PromQL on the recorded series: one value without labels, the sum over all replicas."""
    target: float
    """Value of one replica: HPA's ``averageValue``, KEDA's ``threshold`` of type ``AverageValue``."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """An autoscaler of a deployment. Whole seconds and percent, as HPA's ``behavior`` takes them."""

    metrics: tuple[Metric, ...]
    least: int
    most: int
    window: int
    """Seconds: a replica is removed if none of these needed it (``scaleDown.stabilizationWindowSeconds``)."""
    up_percent: int
    up_seconds: int
    """At most this share more replicas within these seconds (``scaleUp.policies``, type Percent)."""
    down_percent: int
    down_seconds: int


def scaling(deployment: Deployment, namespace: str = "") -> Scaling | None:
    """The autoscaler; None without ``autoscaling.most``. Raises ``TrbError`` USAGE.

    ``namespace``: of Kubernetes, if one Prometheus has several.

    Target of ``pending-batches``: ``autoscaling.pending_batches``, or the batches that wait in a replica at
    the highest load that keeps the objective (``measure/capacity/limit.py``), simulated with the service
    times of the report and capped by its measured capacity. The queue excess guards it: requests that wait
    only because the batcher is told to wait for others do not count (``groups``).

    Target of ``load``: 60 % of that highest load. A queue is short until a replica is full, so that it says
    when to add replicas, but not how many may go: docs/benchmarks/autoscaling.md. Without a report there is
    no such load, and replicas are removed one by one, a window apart.
    """
    stated = deployment.spec.autoscaling
    if not stated.most:
        return None
    window = round(stated.window)
    if window > LONGEST_WINDOW:
        raise wrong(
            deployment.file,
            f"'autoscaling.window' is {window} s; autoscalers take {LONGEST_WINDOW} s at most",
            "lower it to 1h or less",
        )
    limit = _limit(deployment)
    least = scaling_rules.LEAST_PENDING
    target = _short(stated.pending_batches or (scaling_rules.waiting_batches(limit) if limit else least))
    series = scope.matchers(_labels(deployment, namespace))
    longest = f"max by (instance) ({PENDING}{{{series}}})"
    metrics = [
        Metric(
            name="pending-batches",
            help="Full batches that wait in a replica, in the longest queue of its models.",
            query=f"sum(clamp_max({longest}, {_short(scaling_rules.MOST_PENDING * target):g}))",
            target=target,
        )
    ]
    if limit and deployment.capacity and deployment.capacity.service:
        model = deployment.capacity.service.stages[-1].model
        metrics.append(
            Metric(
                name="load",
                help=f"Requests per second of a replica that {model} answers.",
                query=f"sum({LOAD}{{{series}, {of([model])}}})",
                target=_short(limit.per_second * scaling_rules.SHARE),
            )
        )
    alone = min(max(window, scaling_rules.DOWN_SECONDS), LONGEST_PERIOD)
    return Scaling(
        metrics=tuple(metrics),
        least=stated.least,
        most=stated.most,
        window=window,
        up_percent=scaling_rules.UP_PERCENT,
        up_seconds=scaling_rules.UP_SECONDS,
        down_percent=scaling_rules.DOWN_PERCENT,
        down_seconds=scaling_rules.DOWN_SECONDS if limit else alone,
    )


def groups(deployment: Deployment, matchers: str = "", namespace: str = "") -> tuple[Group, ...]:
    """The recording rules that the queries of ``scaling`` read; an ensemble has no queue and no rule.

    ``matchers``: labels that Triton's series of this deployment have besides, such as
    ``pod=~"bert-.+"``, if one Prometheus scrapes several; ``namespace``: as of ``scaling``.
    """
    if namespace:
        matchers = ", ".join((*([matchers] if matchers else []), scope.matchers({"namespace": namespace})))
    listed = tuple(_rules(deployment, matchers, _labels(deployment, namespace)))
    return (Group(name=f"trb_scaling_{deployment.name}", rules=listed),)


def rules(deployment: Deployment, matchers: str = "", namespace: str = "") -> str:
    """``groups`` as a rules file of Prometheus."""
    return templates.render(
        "deploy/scaling_rules.yml.jinja",
        name=deployment.name,
        groups=groups(deployment, matchers, namespace),
    )


def _labels(deployment: Deployment, namespace: str) -> dict[str, str]:
    return {scope.DEPLOYMENT: deployment.name, **({"namespace": namespace} if namespace else {})}


def _rules(deployment: Deployment, matchers: str, common: Mapping[str, str]) -> Iterator[Rule]:
    for batcher in deployment.batchers:
        # promtool refuses two rules of one name and the same labels.
        labels = {**common, "model": batcher.model}
        within = f"{of([batcher.model])}{f', {matchers}' if matchers else ''}"
        answered = _rate("request_success", within)
        yield Rule(name=LOAD, expression=answered, labels=labels)
        yield Rule(name=EXCESS, expression=_excess(batcher, within, answered), labels=labels)
        yield Rule(name=PENDING, expression=_pending(batcher, within, answered), labels=labels)


def _excess(batcher: Batcher, within: str, answered: str) -> str:
    """Mean seconds in the queue beyond the delay that the batcher is told to wait."""
    mean = f"{_rate('queue_duration_us', within)}\n  / ({answered} > 0) / 1e6"
    return f"clamp_min({mean} - {batcher.delay_us / 1e6:g}, 0)"


def _pending(batcher: Batcher, within: str, answered: str) -> str:
    """Batches that wait. What the delay alone keeps waiting is taken off, by Little's law: rate x delay."""
    waiting = (
        f"sum by (instance, model) (avg_over_time(nv_inference_pending_request_count{{{within}}}[{WINDOW}]))"
    )
    if batcher.delay_us:
        waiting = f"clamp_min({waiting}\n  - {batcher.delay_us / 1e6:g} * {answered}, 0)"
    return f"{waiting}\n  / {batcher.batch_of_replica}"


def _rate(metric: str, within: str) -> str:
    return f"sum by (instance, model) (rate(nv_inference_{metric}{{{within}}}[{WINDOW}]))"


def _limit(deployment: Deployment) -> Limit | None:
    """The limit of a replica by the report; None if ``pending_batches`` is stated without one."""
    capacity, objective = deployment.capacity, deployment.spec.objective
    if capacity is None:
        return None
    if capacity.service is None:
        if deployment.spec.autoscaling.pending_batches:
            return None
        raise wrong(
            deployment.file,
            f"{deployment.spec.autoscaling.report} has no time of each batch size, so that no number of "
            "waiting batches follows",
            "give the report.json of 'trb tune', or set autoscaling.pending_batches",
        )
    if deployment.limit is None:
        raise wrong(
            deployment.file,
            f"by {deployment.spec.autoscaling.report} an idle replica takes longer than {objective}",
            "state another objective, or tune for this one",
        )
    return deployment.limit


def _short(value: float) -> float:
    """Two digits: the rest is chance, and files must not differ by it."""
    return float(f"{value:.2g}")
