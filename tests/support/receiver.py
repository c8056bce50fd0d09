"""A receiver of OpenTelemetry spans: OTLP over HTTP, in JSON or protobuf."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """A span as it came."""

    name: str
    service: str
    scope: str
    trace: str
    id: str
    parent: str
    begun: int
    ended: int
    attributes: dict[str, Any]
    kind: int
    failed: bool


@dataclass
class Receiver:
    """What came, and how requests are answered."""

    url: str
    spans: list[Span] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    delay: float = 0.0

    def trace(self, trace: str) -> list[Span]:
        """The spans of one trace in the order of their begin."""
        return sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.begun)

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        """Read one message."""
        message = ExportTraceServiceRequest()
        if headers["content-type"] == "application/json":
            # Ids are hexadecimal in OTLP's JSON, unlike other bytes in that of protobuf.
            message = json_format.Parse(_with_base64_ids(body), message)
        else:
            message.ParseFromString(body)
        self.headers.append(headers)
        for resource in message.resource_spans:
            service = _values(resource.resource.attributes).get("service.name", "")
            for group in resource.scope_spans:
                self.spans += [_span(each, service, group.scope.name) for each in group.spans]


def _with_base64_ids(body: bytes) -> str:
    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64encode(bytes.fromhex(each)).decode() if key.endswith("Id") else changed(each)
            for key, each in value.items()
        }

    return json.dumps(changed(json.loads(body)))


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _span(each: Any, service: str, scope: str) -> Span:
    return Span(
        name=each.name,
        service=service,
        scope=scope,
        trace=each.trace_id.hex(),
        id=each.span_id.hex(),
        parent=each.parent_span_id.hex(),
        begun=each.start_time_unix_nano,
        ended=each.end_time_unix_nano,
        attributes=_values(each.attributes),
        kind=each.kind,
        failed=each.status.code == 2,
    )


@contextmanager
def running(port: int = 0) -> Iterator[Receiver]:
    """A receiver on this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            time.sleep(receiver.delay)
            status = receiver.status
            if status == 200:
                receiver.take(body, {key.lower(): value for key, value in self.headers.items()})
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/v1/traces")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def tree(spans: list[Span], parent: str) -> list[str]:
    """The spans below ``parent``, one a line: name, service, begin and length in milliseconds."""
    first = min((span.begun for span in spans), default=0)

    def below(parent: str, depth: int) -> Iterator[str]:
        for span in sorted(spans, key=lambda each: each.begun):
            if span.parent == parent:
                begun, length = (span.begun - first) / 1e6, (span.ended - span.begun) / 1e6
                yield f"{'  ' * depth + span.name:<32}{span.service:<24}{begun:>8.2f} {length:>8.2f}"
                yield from below(span.id, depth + 1)

    return [*below(parent, 0)]
