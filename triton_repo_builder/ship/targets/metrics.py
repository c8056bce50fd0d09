"""Prometheus' files for a deployment: those of ``trb export monitoring`` with its addresses."""

from __future__ import annotations

from collections.abc import Sequence

from triton_repo_builder.ship.monitoring import export
from triton_repo_builder.ship.monitoring.rules import Objective, Settings
from triton_repo_builder.ship.rendered import Rendered
from triton_repo_builder.ship.targets.containers import refuse
from triton_repo_builder.ship.targets.facts import Deployment


def files(
    deployment: Deployment,
    *,
    targets: Sequence[str],
    gateways: Sequence[str] = (),
    gateway_key: str = "",
    proxies: Sequence[str] = (),
) -> Rendered:
    """The files; addresses are HOST:PORT. Raises ``TrbError`` for an objective without a budget."""
    objective = deployment.spec.objective
    if objective.share == 1:
        raise refuse(
            deployment,
            "'objective' is max, which leaves no request that may be late, so no budget that could burn",
            "use p99, p95, p90 or p50",
        )
    settings = Settings(
        objective=Objective(share=objective.share, seconds=objective.ms / 1000),
        targets=tuple(targets),
        gateways=tuple(gateways),
        gateway_key=gateway_key,
        proxies=tuple(proxies),
        commit=deployment.commit,
    )
    return export.render(deployment.repository, settings)
