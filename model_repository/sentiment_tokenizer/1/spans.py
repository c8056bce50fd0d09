"""Spans for OpenTelemetry: what happens inside a Python model, and inside the gateway.

Copied byte for byte beside ``model.py``. Triton's own trace has a span for each model and none from within
its process; it hands each request's trace context to the model, and ``Steps`` adds spans to that trace. The
receiver's address and headers come from OpenTelemetry's variables; without them nothing is done.

Spans wait in a bounded queue, which a thread sends as JSON by HTTP (OTLP): a receiver that is slow or away
delays no answer. Needs only the standard library.
"""

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

MOST_WAITING = 4096
"""Spans that wait for the receiver; more are dropped."""
MOST_SENT = 512
"""Spans of one message."""
INTERVAL = 1.0
"""Seconds between two looks at the queue."""
TIMEOUT = 5.0
"""Seconds for one message."""
AGAIN = (429, 502, 503, 504)
"""Statuses after which a message may be sent again (OTLP)."""
SERVICE = "triton-inference-server"
"""Triton's own name for itself."""
SERVER, INTERNAL = 2, 1
"""Kinds of spans: a request that came over the network, and work inside of a process."""
ERROR = 2
"""Status of a span whose work failed."""
Parent = tuple[str, str]
"""Trace id and span id, in hexadecimal digits."""


def receiver() -> str:
    """URL of the receiver, as OpenTelemetry's variables name it; empty: no spans."""
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    traces = f"{base.rstrip('/')}/v1/traces" if base else ""
    return os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or traces


def service(default: str) -> str:
    """The resource's name."""
    return os.environ.get("OTEL_SERVICE_NAME") or default


def parent(text: str) -> Parent | None:
    """The parent that a ``traceparent`` names; None if it is not sampled."""
    parts = text.split("-")
    return (parts[1], parts[2]) if len(parts) >= 4 and int(parts[3], 16) & 1 else None


def span(name: str, parent: Parent, times: tuple[int, int], attributes: dict[str, Any]) -> dict[str, Any]:
    """A span in OTLP's JSON; ``times`` are its begin and end in nanoseconds since 1970."""
    return {
        "traceId": parent[0],
        "spanId": new_id(),
        "parentSpanId": parent[1],  # empty: the root of its trace
        "name": name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(times[0]),
        "endTimeUnixNano": str(times[1]),
        "attributes": attributes_of(attributes),
    }


def attributes_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes in OTLP's JSON, where whole numbers are strings."""
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]


def new_id(size: int = 8) -> str:
    """A random id: 8 bytes for a span, 16 for a trace."""
    return os.urandom(size).hex()


def pairs(variable: str) -> dict[str, str]:
    """The pairs ``key=value,…`` of an environment variable, percent-decoded."""
    from urllib.parse import unquote

    entries = (entry.partition("=") for entry in os.environ.get(variable, "").split(","))
    return {key.strip(): unquote(value.strip()) for key, _, value in entries if key.strip()}


class Sender:
    """The queue of one process, and the thread that empties it; the first span starts the thread."""

    def __init__(self, url: str, service: str, scope: str, tell: Callable[[str], None]) -> None:
        self.url = url
        self.dropped = 0
        """Spans that no receiver got."""
        self._service = service
        self._scope = scope
        self._tell = tell
        self._waiting: deque[dict[str, Any]] = deque()
        self._batch: list[dict[str, Any]] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._away = self._over = False

    def add(self, span: dict[str, Any]) -> None:
        """Queue a span; never waits."""
        if len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            return
        self._waiting.append(span)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def close(self, seconds: float = 2.0) -> None:
        """Send what waits, for so many seconds at most."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(seconds)
        self._over = True

    def _run(self) -> None:
        while not self._closing.wait(INTERVAL):
            self._send_waiting()
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send until nothing waits, or a message fails: its spans are sent again with the next."""
        while self._batch or self._waiting:
            while self._waiting and len(self._batch) < MOST_SENT:
                self._batch.append(self._waiting.popleft())
            try:
                status = self._post(self._message(self._batch))
            except Exception as error:  # of the network or of TLS, or an answer that is not HTTP
                self._connection = None
                self._failed(str(error) or type(error).__name__)
                return
            if status in AGAIN:
                self._failed(f"status {status}")
                return
            sent, self._batch = len(self._batch), []
            if status >= 300:
                self.dropped += sent
                self._failed(f"status {status}")
                return
            if self._away:
                self._away = False
                self._tell(f"spans reach {self.url} again; {self.dropped} were dropped")

    def _failed(self, reason: str) -> None:
        """Say once that the receiver takes nothing."""
        if not self._away and not self._over:
            self._away = True
            self._tell(
                f"no spans reach {self.url}: {reason}; requests are answered as before, "
                f"up to {MOST_WAITING} spans wait, more are dropped"
            )

    def _message(self, batch: list[dict[str, Any]]) -> bytes:
        resource: dict[str, Any] = {**pairs("OTEL_RESOURCE_ATTRIBUTES"), "service.name": self._service}
        scope = {"scope": {"name": self._scope}, "spans": batch}
        entry = {"resource": {"attributes": attributes_of(resource)}, "scopeSpans": [scope]}
        return json.dumps({"resourceSpans": [entry]}).encode()

    def _post(self, body: bytes) -> int:
        """The receiver's status; a connection that it has closed meanwhile is made again. Raises."""
        from urllib.parse import urlsplit

        parts = urlsplit(self.url)
        if self._connection is not None:
            with contextlib.suppress(ConnectionError):
                return self._answered(parts, body)
        self._connection = connected(parts.scheme, parts.hostname or "", parts.port)
        return self._answered(parts, body)

    def _answered(self, parts: Any, body: bytes) -> int:
        headers = {"content-type": "application/json", **pairs("OTEL_EXPORTER_OTLP_HEADERS")}
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        answer.read()
        return int(answer.status)


def connected(scheme: str, host: str, port: int | None) -> Any:
    """A connection that begins with its first request."""
    import http.client

    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    import ssl

    authorities = os.environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None
    context = ssl.create_default_context(cafile=authorities)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)


class Busy:
    """Whether an execution has run so long that requests should go elsewhere."""

    LIMIT = 60.0
    """Seconds."""

    def __init__(self) -> None:
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._since = 0.0

    @property
    def stuck(self) -> bool:
        """Asked from another thread while an execution runs."""
        since = self._since
        return bool(since) and time.perf_counter() - since >= self.LIMIT


class Steps:
    """Spans of the steps inside one model: ``begin`` is called once for each execute."""

    def __init__(self, args: dict[str, str]) -> None:
        self._model = args.get("model_name", "")
        self._version = args.get("model_version", "")
        url = receiver()
        self._sender = Sender(url, service(SERVICE), "trb", self._tell) if url else None

    def _tell(self, text: str) -> None:
        # Neither by pb_utils.Logger nor sys.stderr: this thread may outlive the interpreter, and its locks.
        line = f"warning: model '{self._model}' version {self._version}: {text}\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())

    def begin(self, requests: list[Any]) -> Callable[..., None]:
        """A function that ends a step, and begins the next: it is given the step's name and attributes."""
        sender = self._sender
        parents = [] if sender is None else list(filter(None, map(context, requests)))
        if sender is None or not parents:
            return nothing
        begun = time.time_ns()

        def end(name: str, **attributes: Any) -> None:
            nonlocal begun
            times = begun, time.time_ns()
            facts = {
                "triton.model_name": self._model,
                "triton.model_version": int(self._version or 0),
                "trb.requests": len(requests),
                **{f"trb.{key}": value for key, value in attributes.items()},
            }
            for each in parents:
                sender.add(span(name, each, times, facts))
            begun = time.time_ns()

        return end

    def close(self) -> None:
        """Send what waits."""
        if self._sender is not None:
            self._sender.close()


def context(request: Any) -> Parent | None:
    """The span that Triton has for this request at this model (Triton 24.03 and newer); None without one."""
    trace = getattr(request, "trace", None)
    text = trace().get_context() if trace is not None else None
    return parent(json.loads(text).get("traceparent", "")) if text else None


def nothing(name: str, **attributes: Any) -> None:
    """A step of requests that are not traced."""
