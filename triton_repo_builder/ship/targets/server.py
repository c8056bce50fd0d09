"""tritonserver as every target runs it: command line, health check, ports, and the time that a stop takes.

Options: https://github.com/triton-inference-server/server/blob/main/src/command_line_parser.cc
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from triton_repo_builder.run.client.admin_key import HEADER
from triton_repo_builder.run.serve.admin_apis import APIS
from triton_repo_builder.run.serve.loading.release_fit import HISTOGRAMS
from triton_repo_builder.run.serve.processes.ports import DEFAULTS
from triton_repo_builder.ship.targets.facts import Deployment

MODELS = "/models"
"""The repository inside a container."""
HTTP, GRPC, METRICS = (DEFAULTS[kind] for kind in ("http", "grpc", "metrics"))
GATEWAY = 9000
"""Port of ``trb gateway`` in its container."""
MARGIN = 5
"""Seconds of a stop beyond the time for requests under way: unloading, the end of Python processes."""
TICK = 10
"""Seconds between two health checks."""
AGE = 300
"""Seconds after which a gRPC connection is opened again, so that clients find new replicas."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of a replica's life, whole ones, since platforms take no others."""

    start: int
    """From its start until it must be ready."""
    drain: int
    """From leaving the balancer until SIGTERM."""
    stop: int
    """From SIGTERM until requests under way are given up: ``--exit-timeout-secs``."""

    @property
    def grace(self) -> int:
        """From the end of ``drain`` until the platform kills the process."""
        return self.stop + MARGIN

    @property
    def total(self) -> int:
        """From leaving the balancer until the platform kills the process: Kubernetes counts so."""
        return self.drain + self.grace

    @property
    def start_checks(self) -> int:
        """Failed health checks that a starting replica may have."""
        return max(1, math.ceil(self.start / TICK))


def times(deployment: Deployment) -> Times:
    """The times of ``[server]``, rounded up."""
    server = deployment.spec.server
    return Times(start=math.ceil(server.start), drain=math.ceil(server.drain), stop=math.ceil(server.stop))


def arguments(deployment: Deployment, *, models: str = MODELS) -> tuple[str, ...]:
    """Arguments of tritonserver, without the key of the administrative APIs.

    ``models``: a folder, or a bucket's URL that Triton itself reads.
    """
    return (
        f"--model-repository={models}",
        "--model-control-mode=none",
        "--exit-on-error=true",
        "--strict-readiness=true",
        *(["--disable-auto-complete-config"] if deployment.complete else []),
        f"--http-port={HTTP}",
        f"--grpc-port={GRPC}",
        f"--metrics-port={METRICS}",
        f"--exit-timeout-secs={times(deployment).stop}",
        f"--grpc-max-connection-age={AGE * 1000}",
        f"--grpc-max-connection-age-grace={times(deployment).stop * 1000}",
        *(
            [HISTOGRAMS]
            if any(model.config.has("model_metrics") for model in deployment.repository.models)
            else []
        ),
    )


def restricted(key: str) -> tuple[str, ...]:
    """Arguments that close the administrative APIs to requests without the key.

    ``key``: as the platform puts a secret into a command line, such as ``$(ADMIN_KEY)``.
    """
    restriction = f"{','.join(APIS)}:{HEADER}={key}"
    return (f"--http-restricted-api={restriction}", f"--grpc-restricted-protocol={restriction}")


def ready_path(deployment: Deployment) -> str:
    """Path of the HTTP request that a replica which may get traffic answers with 200.

    From 26.04 on the server's own readiness sees Python processes that died. An ensemble's own never does.
    """
    endpoints = deployment.endpoints
    if "stub_ready" in deployment.release.features:
        return "/v2/health/ready"
    return f"/v2/models/{endpoints[0]}/ready" if len(endpoints) == 1 else "/v2/health/ready"


def health_command(deployment: Deployment) -> list[str]:
    """A health check inside the container: NVIDIA's image and trb's have python3; curl only the former."""
    url = f"http://127.0.0.1:{HTTP}{ready_path(deployment)}"
    return [
        "python3",
        "-I",
        "-c",
        f"import urllib.request; urllib.request.urlopen({url!r}, timeout=4).close()",
    ]
