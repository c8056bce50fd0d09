"""The dashboards: what is served, what the texts and the answers look like, and the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton_repo_builder.ship.monitoring import contents, panels, provenance, rules
from triton_repo_builder.ship.monitoring.panels import (
    CHOSEN,
    EVERY,
    PHASE,
    TIMES,
    Dashboard,
    Panel,
    Query,
    heat,
    rate,
)
from triton_repo_builder.ship.monitoring.rules import Settings
from triton_repo_builder.ship.monitoring.source import Source, pattern

NAMED = "{{model}} v{{version}}"


def boards(source: Source, settings: Settings) -> Iterator[tuple[str, Dashboard]]:
    """File names and dashboards."""
    variables = tuple(_variables(source))
    yield (
        "serving.json",
        Dashboard(
            uid="trb-serving",
            title="Serving",
            about=f"Requests, queue, batches and failures. The objective: {settings.objective}.",
            panels=tuple(_serving(source, settings)),
            variables=variables,
        ),
    )
    counted = tuple(contents.contents(source))
    if counted:
        yield (
            "contents.json",
            Dashboard(
                uid="trb-contents",
                title="Texts and answers",
                about="Counted inside the models of trb (docs/metrics.md).",
                panels=counted,
                variables=variables,
            ),
        )
    if settings.gateways:
        yield (
            "gateway.json",
            Dashboard(
                uid="trb-gateway",
                title="Gateway",
                about="Requests as clients of trb gateway see them.",
                panels=tuple(_gateway()),
                variables=variables[:1],
            ),
        )


def _variables(source: Source) -> Iterator[dict[str, Any]]:
    chosen = 'model=~"${endpoint:pipe}"'
    yield panels.datasource()
    yield panels.choice(
        "endpoint", "Endpoint", {each.name: pattern(each.models) for each in source.endpoints}
    )
    yield panels.label_values("version", "Version", f"nv_inference_count{{{chosen}}}")
    if source.counting:
        yield panels.label_values("phase", "Phase", f"trb_phase_seconds_count{{{chosen}}}")


def _serving(source: Source, settings: Settings) -> Iterator[Panel]:
    yield from _summary(source, settings)
    outer = f", {rules.served(source)}"
    succeeded = rate("nv_inference_request_success", "model, version", outer)
    failed = rules.failures(source, "model, version", EVERY, f"{CHOSEN}, ")
    duration = rate("nv_inference_request_duration_us", "model, version", outer)
    mean = f"{duration} / ({succeeded} > 0) / 1e6"
    links = tuple(provenance.links(source))
    yield Panel(
        title="Requests",
        queries=(Query(expression=succeeded, legend=NAMED),),
        unit="reqps",
        about="Requests with an answer.",
        overrides=links,
    )
    yield Panel(
        title="Failures by reason",
        queries=(
            Query(
                expression=rules.failures(source, "model, reason", EVERY, f"{CHOSEN}, "),
                legend="{{model}} {{reason}}",
            ),
        ),
        unit="reqps",
        about="A failed step of an ensemble counts as OTHER here. Triton counts the failures of an ensemble "
        "twice (halved here), and a Python model's own error, outside of an ensemble, as a success.",
        stacked=True,
    )
    yield Panel(
        title="Mean latency",
        queries=(Query(expression=mean, legend=NAMED),),
        unit="s",
        about="From the arrival of a request at Triton to its answer, queue included. Triton 24.10 has no "
        "histogram of it.",
        overrides=links,
    )
    if source.counting:
        yield heat("Latency buckets of the steps", "trb_phase_seconds", "s", PHASE, about=TIMES)
    yield from _steps(source)
    share = f"{failed} / (({succeeded} + {failed}) > 0)"
    columns = {"A": ("Requests", "reqps"), "B": ("Failed", "percentunit"), "C": ("Mean latency", "s")}
    yield Panel(
        title="Versions",
        kind="table",
        queries=tuple(Query(expression=query, instant=True) for query in (succeeded, share, mean)),
        columns=columns,
        about="Versions side by side, over the last minutes.",
        height=6,
        width=24,
    )
    yield Panel(
        title="Where a model comes from",
        kind="text",
        text="\n".join(provenance.table(source, settings.commit)),
        height=6,
        width=24,
    )


def _summary(source: Source, settings: Settings) -> Iterator[Panel]:
    outer = f"{CHOSEN}, {rules.served(source)}"
    budget = settings.objective.budget
    for title, unit, expression in (
        ("Servers", "short", f'sum(up{{job="{rules.SERVER}"}})'),
        ("Requests", "reqps", f"sum(rate(nv_inference_request_success{{{outer}}}[{EVERY}]))"),
        ("Failed", "percentunit", f'max(trb:bad:ratio_rate5m{{sli="failed", {outer}}})'),
        ("Times the budget's speed", "short", f"max(trb:bad:ratio_rate1h) / {budget:g}"),
    ):
        yield Panel(
            title=title, kind="stat", queries=(Query(expression=expression),), unit=unit, width=6, height=4
        )


def _steps(source: Source) -> Iterator[Panel]:
    by = "model, version"
    succeeded = rate("nv_inference_request_success", by)
    queue = f"{rate('nv_inference_queue_duration_us', by)} / ({succeeded} > 0) / 1e6"
    rows = f"{rate('nv_inference_count', by)} / ({rate('nv_inference_exec_count', by)} > 0)"
    yield Panel(
        title="Time in the queue",
        queries=(Query(expression=queue, legend=NAMED),),
        unit="s",
        about="Mean time that a request waits for a model. An ensemble queues nothing itself.",
    )
    yield Panel(
        title="Executed batch",
        queries=(Query(expression=rows, legend=NAMED),),
        about="Rows of one execution, on average.",
    )
    if source.counting:
        total = "trb_phase_seconds"
        spent = f"{rate(f'{total}_sum', 'model, phase')} / ({rate(f'{total}_count', 'model, phase')} > 0)"
        yield heat("Executed batch: rows", "trb_batch_rows", about="Rows of one execution.")
        yield Panel(
            title="Time by phase",
            queries=(Query(expression=spent, legend="{{model}} {{phase}}"),),
            unit="s",
            about=TIMES,
        )


def _gateway() -> Iterator[Panel]:
    requests = "trb_gateway_requests_total"
    phases = "trb_gateway_phase_seconds_bucket"
    infer = f'sum by (le) (increase({phases}{{phase="infer"}}[{EVERY}]))'
    yield Panel(
        title="Requests",
        queries=(
            Query(
                expression=f"sum by (route, model, status) (rate({requests}[{EVERY}]))",
                legend="{{route}} {{model}} {{status}}",
            ),
        ),
        unit="reqps",
        stacked=True,
    )
    yield Panel(
        title="Failures by cause",
        queries=(
            Query(
                expression=f"sum by (cause) (rate(trb_gateway_failures_total[{EVERY}]))",
                legend="{{cause}}",
            ),
        ),
        unit="reqps",
        stacked=True,
    )
    yield Panel(
        title="Latency buckets",
        kind="heatmap",
        queries=(Query(expression=infer),),
        unit="s",
        about="Phase infer: the wait at Triton, and its answer.",
    )
    quantiles = tuple(
        Query(
            expression=f"histogram_quantile({quantile}, sum by (le, phase) (rate({phases}[{EVERY}])))",
            legend=f"p{quantile * 100:g} {{{{phase}}}}",
        )
        for quantile in (0.5, 0.99)
    )
    yield Panel(title="Latency by phase", queries=quantiles, unit="s")
    yield Panel(
        title="Under way",
        queries=(
            Query(expression="sum(trb_gateway_requests_in_flight)", legend="requests"),
            Query(expression="sum(trb_gateway_rows_in_flight)", legend="rows"),
        ),
    )
    yield Panel(
        title="Tokens",
        queries=(
            Query(
                expression=f"sum by (model) (rate(trb_gateway_tokens_total[{EVERY}]))",
                legend="{{model}}",
            ),
        ),
        about="Tokens a second; needs trb gateway --repo.",
    )
