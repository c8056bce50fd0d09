"""Prometheus metrics of the gateway, in prometheus-client's default registry.

Labels are bounded: paths of routes, names of endpoints, statuses. A model that does not exist has none. A
request is counted in plain numbers: prometheus-client, which writes the page, would take a lock for each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from triton_repo_builder.run.gateway.access import Access

disable_created_metrics()  # type: ignore[no-untyped-call]
TYPE = CONTENT_TYPE_LATEST.encode()
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
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


class Counter:
    """A number that grows, for each combination of labels."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.values: defaultdict[tuple[Any, ...], float] = defaultdict(float)

    def family(self) -> CounterMetricFamily:
        """The metric as prometheus-client writes it."""
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for values, number in list(self.values.items()):
            family.add_metric(list(map(str, values)), number)
        return family


class Phase:
    """How long one phase of requests took: numbers by bucket."""

    def __init__(self) -> None:
        self.numbers = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request."""
        self.numbers[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


REQUESTS = Counter(
    "trb_gateway_requests", "Requests by route, endpoint and HTTP status.", "route", "model", "status"
)
ITEMS = Counter("trb_gateway_items", "Texts, pairs and files that were answered.", "model")
TOKENS = Counter("trb_gateway_tokens", "Tokens of texts, as the model sees them.", "model")
FAILURES = Counter("trb_gateway_failures", "Requests without a result, by cause.", "cause")
PHASES = {name: Phase() for name in ("read", "infer", "gateway", "write")}
BOUNDS = (*map(floatToGoString, BUCKETS), "+Inf")


class Collected(Collector):
    """The source of the numbers when prometheus-client writes a page."""

    def collect(self) -> Iterator[Any]:
        """All that is counted here."""
        for counter in (REQUESTS, ITEMS, TOKENS, FAILURES):
            yield counter.family()
        phases = HistogramMetricFamily(
            "trb_gateway_phase_seconds",
            "Time of a request: read its body, infer (wait at Triton and compute), gateway (parse, count, "
            "encode), write the answer.",
            labels=["phase"],
        )
        for name, phase in PHASES.items():
            buckets = list(zip(BOUNDS, accumulate(phase.numbers), strict=True))
            phases.add_metric([name], buckets, phase.sum)
        yield phases


REGISTRY.register(Collected())


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
    REQUESTS.values[access.path, access.model, access.status] += 1
    if access.status >= 400:
        FAILURES.values[CAUSES.get(access.status, "other"),] += 1
    call = access.call
    if call is None:
        return
    if access.status < 400:
        if call.rows:
            ITEMS.values[access.model,] += call.rows
        if call.tokens:
            TOKENS.values[access.model,] += call.tokens
    PHASES["read"].observe(access.read)
    if call.inferred:
        PHASES["infer"].observe(call.inferred)
    PHASES["gateway"].observe(max(0.0, access.handled - call.inferred))
    PHASES["write"].observe(access.written)


def page() -> bytes:
    """The metrics in Prometheus's text format."""
    return generate_latest()
