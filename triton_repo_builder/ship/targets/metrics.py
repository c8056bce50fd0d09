"""Prometheus' files for a deployment: those of ``trb export monitoring`` with its addresses."""

from __future__ import annotations

from collections.abc import Sequence

from triton_repo_builder.ship.monitoring import export
from triton_repo_builder.ship.monitoring.rules import Objective, Settings
from triton_repo_builder.ship.targets.facts import Deployment


def files(
    deployment: Deployment,
    *,
    targets: Sequence[str],
    gateways: Sequence[str] = (),
    gateway_key: str = "",
    proxies: Sequence[str] = (),
) -> dict[str, str]:
    """The files without their index, path → text; addresses are HOST:PORT of metrics."""
    objective = deployment.spec.objective
    settings = Settings(
        objective=Objective(share=objective.share, seconds=objective.ms / 1000),
        targets=tuple(targets),
        gateways=tuple(gateways),
        gateway_key=gateway_key,
        proxies=tuple(proxies),
        commit=deployment.commit,
    )
    rendered = export.render(deployment.repository, settings)
    return {
        path: content.decode()
        for path, content in rendered.contents.items()
        if isinstance(content, bytes) and path != rendered.index
    }
