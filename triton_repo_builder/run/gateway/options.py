"""Options of the gateway, for ``trb gateway`` and ``trb serve --openai``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.declaration import Topic, nested, option
from triton_repo_builder.base.option_values import Choice, FilePath, Number, Off, Real, Receiver, Share, Text

MIB = 1 << 20
GRACE = 5.0
"""Seconds that requests under way get beyond their deadline when the gateway is stopped."""
FORMATS = ("none", "text", "json")
"""Formats of the log of requests."""


@dataclass(frozen=True, kw_only=True)
class ShadowOptions:
    """A second server or version that gets copies of requests."""

    target: str = option(
        "",
        Text(),
        Topic.SERVER,
        "Send copies of requests to this second server (gRPC address) or version, and compare the answers.",
        flag="--shadow",
        metavar="HOST:PORT|VERSION",
    )
    share: float | None = option(
        None,
        Share(),
        Topic.SERVER,
        "With --shadow: share of the requests, 5% or 0.05.",
        default="5%",
        metavar="SHARE",
    )

    def checked(self) -> ShadowOptions:
        """The options. Raises ``TrbError`` USAGE."""
        from triton_repo_builder.run.gateway import addresses

        addresses.check_shadow(self.target, self.share)
        return self


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """Limits, keys and names of a gateway."""

    map: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.SERVER,
        "File (gateway.toml) that names endpoints, aliases and which endpoint answers which route.",
        metavar="FILE",
    )
    keys: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.SERVER,
        "File of API keys, a line each: the key or sha256:HEX, then its owner's name. Read again on change.",
        flag="--api-keys",
        metavar="FILE",
    )
    origins: str = option(
        "",
        Text(),
        Topic.SERVER,
        "Origin whose pages may call the gateway (CORS), several with commas, or *.",
        default="none",
        flag="--allow-origin",
        metavar="ORIGIN",
    )
    shadow: ShadowOptions = nested(ShadowOptions)
    timeout: float = option(30.0, Real(0.1), Topic.SERVER, "Seconds for each request.", flag="--deadline")
    most_requests: int = option(
        512, Number(), Topic.SERVER, "Requests under way; more get 429.", flag="--max-requests"
    )
    most_rows: int = option(
        20_000,
        Number(),
        Topic.SERVER,
        "Rows (texts, pairs, files) under way; more get 429.",
        flag="--max-rows",
    )
    most_items: int = option(
        10_000, Number(), Topic.SERVER, "Items in the list of a request.", flag="--max-items"
    )
    most_bytes: int = option(
        16, Number(1, 1024), Topic.SERVER, "MiB of a request's body.", flag="--max-body", metavar="MIB"
    )
    drain: float = option(
        5.0,
        Real(0.0, 3600.0),
        Topic.SERVER,
        "Seconds after SIGTERM in which /health says 503 and requests are still answered.",
    )
    log_format: str = option(
        "none",
        Choice(FORMATS),
        Topic.OUTPUT,
        "Format of the log; json: an object on each line. text, json: with a line for each request to the "
        "gateway.",
        metavar="none|text|json",
        keeps_topic=True,
    )
    trace: str | None = option(
        None,
        Receiver(),
        Topic.OUTPUT,
        "Send spans to this OpenTelemetry receiver (OTLP over HTTP); otlps:// for TLS.",
        metavar="otlp://HOST:PORT",
        keeps_topic=True,
    )
    trace_rate: int = option(
        1,
        Number(0),
        Topic.OUTPUT,
        "With --trace: trace 1 of N requests, and each that its client traces; 0: only those.",
        metavar="N",
        keeps_topic=True,
    )
    page: bool = option(True, Off(), Topic.SERVER, "No page at / to try endpoints by hand.", flag="--no-page")
