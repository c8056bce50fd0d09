"""Windows as one JSON document: docs/schema/top.schema.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from triton_repo_builder.run.observe.growth import Latency
from triton_repo_builder.run.observe.window import EndpointWindow, ModelWindow, Window

SCHEMA = 1


def document(windows: Iterable[Window], interval: float) -> dict[str, Any]:
    """All servers; null stands for what is not known."""
    return {"schema": SCHEMA, "interval_s": interval, "servers": [_server(window) for window in windows]}


def _server(window: Window) -> dict[str, Any]:
    after = window.after
    return {
        "url": after.urls.http,
        "metrics_url": after.urls.metrics,
        "state": after.state,
        "problem": after.problem,
        "metrics_problem": after.metrics_problem,
        "version": after.version,
        "seconds": window.seconds,
        "cores": window.cores,
        "memory_bytes": after.memory_bytes,
        "machine_cpu": window.machine_cpu if after.answers else None,
        "gpus": [asdict(gpu) for gpu in window.gpus],
        "failed": [
            {"model": entry.name, "version": entry.version, "reason": entry.reason} for entry in window.failed
        ],
        "endpoints": [_endpoint(each) for each in window.endpoints],
    }


def _endpoint(each: EndpointWindow) -> dict[str, Any]:
    itself = each.itself
    return {
        "endpoint": each.endpoint,
        "version": each.version,
        "requests": itself.requests if itself else None,
        "requests_per_s": itself.requests_per_s if itself else None,
        "rows_per_s": itself.rows_per_s if itself else None,
        "latency_ms": _latency(itself.latency if itself else Latency()),
        "queue_ms": each.queue_ms,
        "pending": each.pending,
        "rows_per_execution": each.rows_per_execution,
        "busy": each.busy,
        "cores": each.cores,
        "failures_per_s": dict(itself.failures) if itself else None,
        "refused_per_s": each.refused,
        "tokens_per_text": each.ratio("tokens", "texts"),
        "unknown_token_share": each.ratio("unknown_tokens", "tokens"),
        "truncated_text_share": each.ratio("truncated_texts", "texts"),
        "labels": each.labels,
        "answer_confidence": each.mean("answer_confidence"),
        "embedding_norm": each.mean("embedding_norm"),
        "transcript_characters": each.mean("transcript_characters"),
        "models": [_model(model) for model in each.models],
    }


def _model(model: ModelWindow) -> dict[str, Any]:
    return {
        "model": model.model,
        "version": model.version,
        "backend": model.backend,
        "shared_with": list(model.shared_with),
        "requests": model.requests,
        "requests_per_s": model.requests_per_s,
        "rows_per_execution": model.rows_per_execution,
        "latency_ms": _latency(model.latency),
        "queue_ms": model.queue_ms,
        "infer_ms": model.infer_ms,
        "busy": model.busy,
        "cores": model.cores,
        "pending": model.pending,
        "failures_per_s": dict(model.failures),
        "executions_by_batch_size": {str(size): count for size, count in model.batches.items()},
        "counts": dict(model.counts),
        "phases_ms": {phase: _latency(times) for phase, times in model.phases.items()},
    }


def _latency(latency: Latency) -> dict[str, float | None]:
    return {"mean": latency.mean, "p50": latency.p50, "p99": latency.p99}
