"""Options of the gateway, for ``trb gateway`` and ``trb serve --openai``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.declaration import Topic, nested, option
from triton_repo_builder.base.option_values import FilePath, Number, Off, Real, Share, Text


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
    share: float = option(
        0.05, Share(), Topic.SERVER, "With --shadow: share of the requests, 5% or 0.05.", metavar="SHARE"
    )


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """What the gateway lets in, and how long it waits."""

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
        "Origin whose pages may call the gateway (CORS), or *.",
        default="none",
        flag="--allow-origin",
        metavar="ORIGIN",
    )
    shadow: ShadowOptions = nested(ShadowOptions)
    timeout: float = option(30.0, Real(0.1), Topic.SERVER, "Seconds for each request.", flag="--deadline")
    most_requests: int = option(
        512, Number(), Topic.SERVER, "Requests under way; more get 429.", flag="--max-requests"
    )
    most_items: int = option(
        10_000, Number(), Topic.SERVER, "Items in the list of a request.", flag="--max-items"
    )
    most_bytes: int = option(
        16, Number(1, 1024), Topic.SERVER, "MiB of a request's body.", flag="--max-body", metavar="MIB"
    )
    page: bool = option(True, Off(), Topic.SERVER, "No page at / to try endpoints by hand.", flag="--no-page")
