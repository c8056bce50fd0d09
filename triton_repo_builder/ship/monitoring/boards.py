"""The dashboards: what is served, what the texts and the answers look like, and the gateway."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from triton_repo_builder.repository.manifest import VersionEntry
from triton_repo_builder.run.observe import drift_rules
from triton_repo_builder.ship.monitoring import panels, rules
from triton_repo_builder.ship.monitoring.panels import Dashboard, Panel, Query
from triton_repo_builder.ship.monitoring.rules import Settings
from triton_repo_builder.ship.monitoring.source import Endpoint, Source, pattern

EVERY = "$__rate_interval"
CHOSEN = 'model=~"${endpoint:pipe}", version=~"${version:pipe}"'
"""The models of the chosen endpoints: their names are patterns already, so Grafana must not escape them."""
PHASE = ', phase=~"${phase:pipe}"'
NAMED = "{{model}} v{{version}}"
LABELS = (
    "text-classification",
    "zero-shot-classification",
    "image-classification",
    "zero-shot-image-classification",
    "audio-classification",
)
EMBEDDINGS = ("embedding", "image-embedding")
_WEB = re.compile(r"https?://[^\s<>\"]+")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")


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
    contents = tuple(_contents(source))
    if contents:
        yield (
            "contents.json",
            Dashboard(
                uid="trb-contents",
                title="Texts and answers",
                about="Counted inside the models of trb (docs/metrics.md).",
                panels=contents,
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


def _rate(metric: str, by: str, matchers: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{CHOSEN}{matchers}}}[{EVERY}]))"


def _heat(title: str, metric: str, unit: str = "short", matchers: str = "", **attributes: Any) -> Panel:
    """A heat map of a histogram over time."""
    query = f"sum by (le) (increase({metric}_bucket{{{CHOSEN}{matchers}}}[{EVERY}]))"
    return Panel(title=title, kind="heatmap", queries=(Query(expression=query),), unit=unit, **attributes)


def _classes(title: str, metric: str, label: str, about: str) -> Panel:
    """A heat map with a row for each class."""
    query = f"sum by ({label}) (increase({metric}{{{CHOSEN}}}[{EVERY}]))"
    return Panel(
        title=title,
        kind="heatmap",
        queries=(Query(expression=query, legend=f"{{{{{label}}}}}"),),
        about=about,
        rows=True,
    )


def _serving(source: Source, settings: Settings) -> Iterator[Panel]:
    yield from _summary(source, settings)
    outer = f", {rules.served(source)}"
    succeeded = _rate("nv_inference_request_success", "model, version", outer)
    failed = rules.failures(source, "model, version", EVERY, f"{CHOSEN}, ")
    duration = _rate("nv_inference_request_duration_us", "model, version", outer)
    mean = f"{duration} / ({succeeded} > 0) / 1e6"
    links = tuple(_links(source))
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
        yield _heat("Latency buckets of the steps", "trb_phase_seconds", "s", PHASE, about=_PHASES)
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
        text="\n".join(_provenance(source, settings.commit)),
        height=6,
        width=24,
    )


_PHASES = (
    "Time of one execution in a phase (docs/metrics.md), such as tokenize, infer and answer. The time in a "
    "queue is not part of it."
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
    succeeded = _rate("nv_inference_request_success", by)
    queue = f"{_rate('nv_inference_queue_duration_us', by)} / ({succeeded} > 0) / 1e6"
    rows = f"{_rate('nv_inference_count', by)} / ({_rate('nv_inference_exec_count', by)} > 0)"
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
        spent = f"{_rate(f'{total}_sum', 'model, phase')} / ({_rate(f'{total}_count', 'model, phase')} > 0)"
        yield _heat("Executed batch: rows", "trb_batch_rows", about="Rows of one execution.")
        yield Panel(
            title="Time by phase",
            queries=(Query(expression=spent, legend="{{model}} {{phase}}"),),
            unit="s",
            about=_PHASES,
        )


def _contents(source: Source) -> Iterator[Panel]:
    """The panels of ClearML's article, in its order, then tokens."""
    if not source.counting:
        return
    if source.tokenizers:
        yield Panel(
            title="Unknown tokens",
            queries=(
                Query(
                    expression=f"sum by (model) (increase(trb_unknown_tokens_total{{{CHOSEN}}}[{EVERY}]))",
                    legend="{{model}}",
                ),
            ),
            about="Tokens that the vocabulary does not have.",
        )
    yield _heat("Latency buckets", "trb_phase_seconds", "s", PHASE, about=_PHASES)
    yield from _outputs(source)
    if source.tokenizers:
        yield from _tokens()


def _outputs(source: Source) -> Iterator[Panel]:
    """A heat map of each output."""
    tasks = source.tasks
    if tasks & {*LABELS}:
        yield _classes("Answers by label", "trb_answers_total", "label", "The best label of each answer.")
        yield _heat("Confidence", "trb_answer_confidence", "percentunit", about="Score of the best label.")
    if "token-classification" in tasks:
        yield _classes("Entities by type", "trb_entities_total", "type", "Entities in the answers.")
    if "question-answering" in tasks:
        yield _classes("Questions", "trb_question_answers_total", "outcome", "With an answer, or none.")
    if tasks & {*EMBEDDINGS}:
        yield _heat("Norm of embeddings", "trb_embedding_norm", about="Length of the vectors.")
    if "object-detection" in tasks:
        yield _classes("Boxes by label", "trb_boxes_total", "label", "Boxes in the answers.")
    if "automatic-speech-recognition" in tasks:
        yield _heat("Length of transcripts", "trb_transcript_characters", about="Characters of an answer.")


def _tokens() -> Iterator[Panel]:
    tokens, texts = _rate("trb_tokens_total", "model"), _rate("trb_texts_total", "model")
    for title, unit, expression, about in (
        ("Tokens", "short", tokens, "Tokens a second."),
        (
            "Share of unknown tokens",
            "percentunit",
            f"{_rate('trb_unknown_tokens_total', 'model')} / ({tokens} > 0)",
            "Of all tokens.",
        ),
        (
            "Share of truncated texts",
            "percentunit",
            f"{_rate('trb_truncated_texts_total', 'model')} / ({texts} > 0)",
            "Of all texts.",
        ),
    ):
        yield Panel(
            title=title, queries=(Query(expression=expression, legend="{{model}}"),), unit=unit, about=about
        )
    yield _heat("Tokens of a text", "trb_text_tokens", about="Tokens of each text.")
    psi = f'max by (model, version, metric) (trb:drift:psi{{{CHOSEN}, window!="{drift_rules.SOON}"}})'
    yield Panel(
        title="Drift",
        queries=(Query(expression=psi, legend="{{model}} v{{version}} {{metric}}"),),
        about="Population stability index against the reference of the build, over the long window of "
        "drift.yml: above 0.1 moderate, above 0.25 drifted. Needs enough texts: trb drift says how many.",
    )
    yield Panel(
        title="Refused texts by reason",
        queries=(
            Query(
                expression=_rate("trb_refused_texts_total", "model, reason"), legend="{{model}} {{reason}}"
            ),
        ),
        stacked=True,
        about="Texts without an answer, a second.",
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
                expression=f"sum by (cause) (rate(trb_gateway_failures_total[{EVERY}]))", legend="{{cause}}"
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
            Query(expression=f"sum by (model) (rate(trb_gateway_tokens_total[{EVERY}]))", legend="{{model}}"),
        ),
        about="Tokens a second; needs trb gateway --repo.",
    )


def _links(source: Source) -> Iterator[dict[str, Any]]:
    """Links from the series of a version to its training run and its data set."""
    for each in source.endpoints:
        for entry in each.versions:
            origin = entry.provenance
            links = [
                {"title": title, "url": url, "targetBlank": True}
                for title, url in (("Training run", origin.source_run), ("Data set", origin.dataset_id))
                if _WEB.fullmatch(url)
            ]
            if links:
                yield {
                    "matcher": {"id": "byName", "options": f"{each.name} v{entry.version}"},
                    "properties": [{"id": "links", "value": links}],
                }


def _provenance(source: Source, commit: str) -> Iterator[str]:
    """Markdown: a row for each version."""
    yield "| endpoint | version | built from | git commit | training run | data set |"
    yield "|---|---|---|---|---|---|"
    for each in source.endpoints:
        for entry in each.versions:
            yield _row(each, entry, commit)
        if not each.versions:
            yield f"| {_plain(each.name)} | | not built by trb | | | |"
    yield "\nWhat a server serves now, with the sha256 of every file: `trb provenance --url http://SERVER:8000`"


def _row(each: Endpoint, entry: VersionEntry, commit: str) -> str:
    model = f"{entry.sources[0].file} {entry.sources[0].sha256[:12]}" if entry.sources else ""
    origin = entry.provenance
    cells = (
        *(_plain(each.name), str(entry.version), _plain(model), _short(commit)),
        *(_linked(origin.source_run), _linked(origin.dataset_id)),
    )
    return f"| {' | '.join(cells)} |"


def _short(commit: str) -> str:
    return commit[:12] + "-dirty" * commit.endswith("-dirty")


def _linked(text: str) -> str:
    """A link if the text is the address of a page."""
    if _WEB.fullmatch(text):
        return f"[{_plain(text)}]({quote(text, safe=':/?#@!$&*+,;=%~._-')})"
    return _plain(text)


def _plain(text: str) -> str:
    """Text that Markdown leaves alone."""
    return _MARKDOWN.sub(r"\\\1", text)
