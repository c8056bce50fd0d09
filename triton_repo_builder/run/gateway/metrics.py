"""Prometheus metrics of the gateway, in prometheus-client's default registry.

Labels are bounded: paths of routes, names of endpoints, statuses. A model that does not exist has none.
"""

from __future__ import annotations

from typing import Any, Protocol

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from triton_repo_builder.run.gateway.access import Access

disable_created_metrics()  # type: ignore[no-untyped-call]
TYPE = CONTENT_TYPE_LATEST.encode()
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
REQUESTS = Counter(
    "trb_gateway_requests", "Requests by route, endpoint and HTTP status.", ["route", "model", "status"]
)
ITEMS = Counter("trb_gateway_items", "Texts, pairs and files that were answered.", ["model"])
TOKENS = Counter("trb_gateway_tokens", "Tokens of texts, as the model sees them.", ["model"])
FAILURES = Counter("trb_gateway_failures", "Requests without a result, by cause.", ["cause"])
PHASES = Histogram(
    "trb_gateway_phase_seconds",
    "Time of a request: read its body, infer (wait at Triton and compute), gateway (parse, count, encode), "
    "write the answer.",
    ["phase"],
    buckets=BUCKETS,
)
IN_FLIGHT = Gauge("trb_gateway_requests_in_flight", "Requests under way.")
ROWS = Gauge("trb_gateway_rows_in_flight", "Rows of requests under way.")
BODIES = Gauge("trb_gateway_body_bytes_in_flight", "Bytes of bodies of requests under way.")
CAUSES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "not_found",
    408: "slow_client",
    413: "too_large",
    422: "invalid",
    429: "overloaded",
    499: "client_gone",
    500: "bug",
    502: "backend",
    503: "unavailable",
    504: "deadline",
}
_read, _infer, _gateway, _write = (PHASES.labels(phase) for phase in ("read", "infer", "gateway", "write"))
_children: dict[tuple[Any, ...], Any] = {}
"""Counters by their labels: ``labels()`` itself takes a lock and builds a tuple of texts each time."""


class UnderWay(Protocol):
    """Counts of what is under way (``admission.py``)."""

    requests: int
    rows: int
    bytes: int


def watch(admission: UnderWay) -> None:
    """Show what is under way in this gateway."""
    IN_FLIGHT.set_function(lambda: admission.requests)
    ROWS.set_function(lambda: admission.rows)
    BODIES.set_function(lambda: admission.bytes)


def count(access: Access) -> None:
    """Count a request that is over."""
    _child(REQUESTS, access.path, access.model, access.status).inc()
    if access.status >= 400:
        _child(FAILURES, CAUSES.get(access.status, "other")).inc()
    call = access.call
    if call is None:
        return
    if access.status < 400:
        if call.rows:
            _child(ITEMS, access.model).inc(call.rows)
        if call.tokens:
            _child(TOKENS, access.model).inc(call.tokens)
    _read.observe(access.read)
    if call.inferred:
        _infer.observe(call.inferred)
    _gateway.observe(max(0.0, access.handled - call.inferred))
    _write.observe(access.written)


def page() -> bytes:
    """The metrics in Prometheus's text format."""
    return generate_latest()


def _child(metric: Counter, *labels: object) -> Counter:
    key = (metric, *labels)
    child: Counter | None = _children.get(key)
    if child is None:
        child = _children[key] = metric.labels(*map(str, labels))
    return child
