"""Endpoint configurations: a version alone, beside the one that runs now, and as its shadow."""

from __future__ import annotations

import hashlib
from typing import Any

from triton_repo_builder.ship.rendered import document
from triton_repo_builder.ship.targets import server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import ALL

SERVER, STABLE, CANDIDATE = "server", "stable", "candidate"
"""Names of variants: alone, and beside each other."""


def variant(deployment: Deployment, name: str, model: str, weight: float = 1.0) -> dict[str, Any]:
    """A variant of an endpoint configuration."""
    spec = deployment.spec
    return {
        "VariantName": name,
        "ModelName": model,
        "InitialInstanceCount": spec.autoscaling.least if spec.autoscaling.most else spec.server.replicas,
        "InstanceType": spec.sagemaker.instance,
        "InitialVariantWeight": weight,
        "ContainerStartupHealthCheckTimeoutInSeconds": server.times(deployment).start,
        # Rows take unlike times, so that the fullest replica is not simply the next one.
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }


def config(name: str, tags: list[dict[str, str]], **variants: Any) -> dict[str, Any]:
    """An endpoint configuration: SageMaker never changes one, so its name says what is in it."""
    return {"EndpointConfigName": f"{name}-{tag(variants)}", **variants, "Tags": tags}


def tag(content: object) -> str:
    """A short digest for the name of what SageMaker never changes."""
    return hashlib.sha256(document(content).encode()).hexdigest()[:12]


def beside_stable(
    deployment: Deployment, model: str, promoted: str, tags: list[dict[str, str]]
) -> dict[str, dict[str, Any]]:
    """Endpoint configurations with the model that runs now: a canary by weights, and a shadow.

    ``promoted``: the configuration of ``model`` alone.
    """
    name, stable = deployment.name, deployment.spec.sagemaker.stable
    if not stable:
        return {}
    first, *later = deployment.spec.canary.steps
    canary = config(
        name,
        tags,
        ProductionVariants=[
            variant(deployment, STABLE, stable, float(ALL - first)),
            variant(deployment, CANDIDATE, model, float(first)),
        ],
    )
    shadow = config(
        name,
        tags,
        ProductionVariants=[variant(deployment, STABLE, stable)],
        ShadowProductionVariants=[variant(deployment, CANDIDATE, model)],
    )
    endpoint = {"EndpointName": name}
    weights = {
        f"canary/{'abort' if step == 0 else f'step-{step}'}": {
            **endpoint,
            "DesiredWeightsAndCapacities": [
                {"VariantName": STABLE, "DesiredWeight": float(ALL - step)},
                {"VariantName": CANDIDATE, "DesiredWeight": float(step)},
            ],
        }
        for step in (0, *later)
    }
    return {
        "canary/create-endpoint-config": canary,
        "canary/update-endpoint": {**endpoint, "EndpointConfigName": canary["EndpointConfigName"]},
        **weights,
        # SageMaker shifts traffic step by step between endpoints of one variant only.
        "canary/promote": {**endpoint, "EndpointConfigName": promoted},
        "shadow/create-endpoint-config": shadow,
        "shadow/update-endpoint": {**endpoint, "EndpointConfigName": shadow["EndpointConfigName"]},
    }
