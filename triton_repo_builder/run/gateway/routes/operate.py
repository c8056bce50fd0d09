"""The gateway's own routes: ``/metrics``."""

from __future__ import annotations

from triton_repo_builder.run.gateway import metrics
from triton_repo_builder.run.gateway.call import Call, Reply, Route


async def prometheus(call: Call) -> Reply:
    """``GET /metrics``."""
    return Reply(metrics.page(), metrics.TYPE)


ROUTES = (
    Route(path="/metrics", handler=prometheus, api="gateway", method="GET", summary="Metrics for Prometheus"),
)
