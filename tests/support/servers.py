"""Options of servers that tests start."""

from __future__ import annotations

from typing import Any

from triton_repo_builder.run.serve import ServeOptions


def free(*models: str, **more: Any) -> ServeOptions:
    """Any free ports, and only these models if there are any."""
    return ServeOptions(http_port=0, grpc_port=0, metrics_port=0, models=models, **more)
