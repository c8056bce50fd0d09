"""Options of ``trb serve`` and ``trb smoke``: how a server is started, and what is checked on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Choice, FilePath, Names, Number, Off, Real, Switch, Text

PORT = Number(0, 65535)


@dataclass(frozen=True, kw_only=True)
class ContainerOptions:
    """Options of the Docker engine only."""

    image: str = option(
        "",
        Text(),
        Topic.ENGINE,
        "Docker: image with a tritonserver.",
        default="nvcr.io/nvidia/tritonserver:<release>-py3",
        metavar="NAME",
    )
    release: str = option(
        "",
        Text(),
        Topic.ENGINE,
        "Docker: release of the official image.",
        default="the one that the repository was built for, else the newest pulled",
        flag="--triton-release",
        metavar="YY.MM",
    )
    pull: str = option(
        "missing", Choice(("missing", "always", "never")), Topic.ENGINE, "Docker: when to pull the image."
    )
    gpus: str = option(
        "auto",
        Text(),
        Topic.ENGINE,
        "Docker: GPUs for the container; auto: all that Docker has.",
        metavar="auto|all|none|N,N",
    )
    user: str = option(
        "",
        Text(),
        Topic.ENGINE,
        "Docker: user of the server process.",
        default="this user, 1000:1000 for root",
        flag="--container-user",
        metavar="UID:GID|image",
    )


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How a server is started. Port 0 is any free one."""

    host: str = "127.0.0.1"
    http_port: int = option(8000, PORT, Topic.SERVER, "0: any free port.")
    grpc_port: int = option(8001, PORT, Topic.SERVER, "0: any free port.")
    metrics_port: int = option(8002, PORT, Topic.SERVER, "0: any free port.")
    percentiles: bool = option(
        False, Switch(), Topic.SERVER, "Let the server compute p50 to p99.9 of each model, for trb top."
    )
    models: tuple[str, ...] = option(
        (),
        Names(),
        Topic.SERVER,
        "Load only this model and what it needs; repeatable. none: nothing yet, see trb load.",
        flag="--load",
        metavar="NAME",
    )
    load_timeout: float = option(
        300.0, Real(0, above=True), Topic.SERVER, "Seconds until all models must be ready.", flag="--timeout"
    )
    log_file: Path | None = option(
        None, FilePath(folder=False), Topic.OUTPUT, "File for the server's output."
    )
    """None: a temporary one that is kept only after a failure."""
    log_append: bool = False
    """Go on at the end of this file; otherwise it is emptied first."""
    verbose: bool = option(False, Switch(), Topic.OUTPUT, "Let the server log every request.")
    log_json: bool = False
    """The log has a JSON object on each line."""
    trace: str = ""
    """URL of an OpenTelemetry receiver (OTLP over HTTP) that gets spans."""
    trace_rate: int = 1
    """1 of so many requests without a ``traceparent`` is traced; 0: none."""
    exit_timeout: int = 10
    """Seconds that running requests get to finish when the server is stopped."""
    extra: tuple[str, ...] = ()
    """More options of tritonserver, ``--name=value``. Relative paths mean the current folder."""
    container: ContainerOptions = ContainerOptions()
    models_url: str = ""
    """``s3://…`` that the server itself reads its models from; the local folder then only describes them."""
    admin_key: str = field(default="", repr=False)
    """The key that restricts the administrative APIs (``admin_apis.py``); empty on another address than
    loopback: a random one."""
    open_apis: bool = option(
        False, Switch(), Topic.SERVER, "Leave these APIs open also beyond this machine (--host)."
    )


@dataclass(frozen=True, kw_only=True)
class SmokeOptions:
    """Checks of an endpoint, and their load."""

    endpoints: tuple[str, ...] = option(
        (), Names(), Topic.CHECKS, "Check only this endpoint (repeatable).", flag="--endpoint", metavar="NAME"
    )
    clients: int = option(16, Number(1, 256), Topic.CHECKS, "Clients at the same time.")
    requests: int = option(8, Number(), Topic.CHECKS, "Requests of each client.")
    timeout: float = option(30.0, Real(0.1), Topic.CHECKS, "Seconds for each request.")
    cases: bool = option(
        True,
        Off(),
        Topic.CHECKS,
        "Skip golden cases: checks consistency only, parity stays unproven.",
        flag="--no-cases",
    )
    live: bool = option(
        False,
        Switch(),
        Topic.CHECKS,
        "The address has other clients, or several servers: compare no counters, and send no malformed "
        "requests, which count as failed.",
    )
