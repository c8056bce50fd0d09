"""Spans of the gateway's requests, for OpenTelemetry; Triton's spans are below them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.run.gateway.access import Access, trace
from triton_repo_builder.run.gateway.triton import Metadata
from triton_repo_builder.runtime import spans


@dataclass(slots=True)
class Span:
    """A traced request."""

    parent: spans.Parent
    """Trace id, and id of the client's span or nothing."""
    metadata: Metadata
    """For Triton: this span as the parent of its own."""
    id: str
    begun: int = field(default_factory=time.time_ns)


class Tracer:
    """Decides which requests are traced, and sends their spans."""

    def __init__(self, url: str, rate: int, tell: Callable[[str], None]) -> None:
        """``rate``: 1 of so many requests without a ``traceparent`` is traced; 0: none."""
        self._sender = spans.Sender(url, spans.service("trb-gateway"), "trb.gateway", tell)
        self._rate = rate
        self._count = 0

    def begin(self, headers: Mapping[bytes, bytes]) -> Span | None:
        """The span of a request; None if it is not traced.

        One that its client does not sample goes to Triton without a ``traceparent``: Triton traces each that
        has one, and does not read that flag.
        """
        handed = trace(headers)
        if handed:
            parent = spans.parent(handed[0][1])
        elif self._rate:
            parent = (spans.new_id(16), "") if self._count % self._rate == 0 else None
            self._count += 1
        else:
            return None
        if parent is None:
            return None
        id = spans.new_id()
        return Span(parent, (("traceparent", f"00-{parent[0]}-{id}-01"), *handed[1:]), id)

    def end(self, span: Span, access: Access, method: str) -> None:
        """Queue the span of a request that is over."""
        attributes: dict[str, Any] = {
            "http.request.method": method,
            "http.route": access.path,
            "http.response.status_code": access.status,
            "trb.request_id": access.id,
        }
        if access.model:
            attributes["gen_ai.request.model"] = access.model
        if "embed" in access.path:
            attributes["gen_ai.operation.name"] = "embeddings"
        if access.call is not None and access.call.tokens:
            attributes["gen_ai.usage.input_tokens"] = access.call.tokens
        times = span.begun, time.time_ns()
        entry = spans.span(f"{method} {access.path}", span.parent, times, attributes)
        entry |= {"spanId": span.id, "kind": spans.SERVER}
        if access.status >= 500:
            entry["status"] = {"code": spans.ERROR}
        self._sender.add(entry)

    def close(self) -> None:
        """Send what waits."""
        self._sender.close()
