"""OpenTelemetry traces of a server: Triton's own spans, and those of our Python models."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from triton_repo_builder.run.client.values import LOOPBACK
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.engine import Progress
from triton_repo_builder.runtime import spans

DELAY = 1000
"""Milliseconds that spans wait in the server before they are sent; Triton alone takes 5 seconds."""

PASSED = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME")
"""OpenTelemetry's variables of this process that a server in a container gets, too."""


def arguments(options: ServeOptions) -> list[str]:
    """The options of tritonserver."""
    if not options.trace:
        return []
    settings = (
        "mode=opentelemetry",
        "level=TIMESTAMPS",
        f"rate={options.trace_rate}",
        f"opentelemetry,url={options.trace}",
        f"opentelemetry,resource=service.name={spans.service(spans.SERVICE)}",
        f"opentelemetry,bsp_schedule_delay={DELAY}",
    )
    return [f"--trace-config={setting}" for setting in settings]


def environment(options: ServeOptions) -> dict[str, str]:
    """Variables for the Python models, which send their spans themselves, and for Triton."""
    if not options.trace:
        return {}
    set_here = {name: os.environ[name] for name in PASSED if os.environ.get(name)}
    return {**set_here, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": options.trace}


def warn_of_loopback(options: ServeOptions, tell: Progress) -> None:
    """Say that a container cannot reach a receiver on this machine's loopback address."""
    if options.trace and urlsplit(options.trace).hostname in LOOPBACK:
        tell(
            f"warning: no spans reach {options.trace} from a container, where that address is the container "
            "itself: name an address of this machine, such as otlp://172.17.0.1:4318"
        )
