"""Prometheus' files for a deployment: those of ``trb export monitoring`` with its addresses."""

from __future__ import annotations

from collections.abc import Sequence

from triton_repo_builder.ship.monitoring import export
from triton_repo_builder.ship.monitoring.rules import Objective, Settings
from triton_repo_builder.ship.rendered import Rendered
from triton_repo_builder.ship.targets.facts import Deployment


def files(
    deployment: Deployment,
    *,
    targets: Sequence[str],
    gateways: Sequence[str] = (),
    gateway_key: str = "",
    proxies: Sequence[str] = (),
) -> Rendered:
    """The files; addresses are HOST:PORT of metrics."""
    objective = deployment.spec.objective
    settings = Settings(
        objective=Objective(share=objective.share, seconds=objective.ms / 1000),
        targets=tuple(targets),
        gateways=tuple(gateways),
        gateway_key=gateway_key,
        proxies=tuple(proxies),
        commit=deployment.commit,
    )
    return export.render(deployment.repository, settings)
