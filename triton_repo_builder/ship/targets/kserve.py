"""``trb export kserve``: a ServingRuntime and an InferenceService of the whole repository.

Fields: https://github.com/kserve/kserve/tree/master/config/crd/full; ``spec.canary`` needs KServe 0.20 and
its Standard mode, ``oci+fetch://`` KServe 0.21.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from triton_repo_builder.base import templates
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import some
from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets import scaling, server, sources
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import ALL, wrong

MODELS = "/mnt/models"
"""Where KServe puts what ``storageUri`` names."""
HTTP, GRPC = 8080, 9000
"""Ports of KServe's own runtimes."""
TEMPORARY = "1Gi"
"""Limit of /tmp, as on Kubernetes: KServe fetches the repository into a volume of its own."""
LABEL = 63
"""Characters of a label's value at most."""


def render(deployment: Deployment) -> dict[str, str]:
    """The objects, and a patch for each step of a canary. Raises ``TrbError`` for a source KServe lacks."""
    storage = _storage(deployment)
    name, times = deployment.name, server.times(deployment)
    common: dict[str, Any] = {
        "name": name,
        "labels": {
            "app.kubernetes.io/name": name,
            "app.kubernetes.io/component": "server",
            "app.kubernetes.io/managed-by": "trb",
            "io.github.triton-repo-builder.revision": deployment.revision[:LABEL],
        },
        "spec": deployment.spec,
        "times": times,
    }
    runtime = templates.render(
        "deploy/kserve/serving_runtime.yaml.jinja",
        **common,
        image=deployment.image,
        arguments=_arguments(deployment),
        shared_memory=deployment.shared_memory,
        temporary=TEMPORARY,
        ready=server.ready_path(deployment),
        start_checks=times.start_checks,
        tick=server.TICK,
        ports={"http": HTTP, "grpc": GRPC, "metrics": server.METRICS},
        version="@version@",
    )
    version = hashlib.sha256(f"{storage}\n{runtime}".encode()).hexdigest()[:8]
    predictor = {"version": f"v{version}", "runtime": f"{name}-{version}", "storage": storage}
    service = {**common, **predictor, **_scaling(deployment)}
    objects = {
        "serving-runtime.yaml": runtime.replace("@version@", version),
        "service-account.yaml": templates.render("deploy/kserve/service_account.yaml.jinja", **common),
        "inference-service.yaml": templates.render(
            "deploy/kserve/inference_service.yaml.jinja", **service, promote=False
        ),
        "pod-disruption-budget.yaml": templates.render(
            "deploy/kserve/pod_disruption_budget.yaml.jinja", **common
        ),
        **_monitoring(deployment, common),
    }
    files = {
        **objects,
        "kustomization.yaml": templates.render(
            "deploy/kserve/kustomization.yaml.jinja",
            files=sorted(objects),
            own_namespace=deployment.spec.kubernetes.namespace,
        ),
        "canary/promote.yaml": templates.render(
            "deploy/kserve/inference_service.yaml.jinja", **service, promote=True
        ),
        "canary/abort.yaml": templates.render("deploy/kserve/canary_abort.yaml.jinja"),
    }
    for step in deployment.spec.canary.steps:
        files[f"canary/step-{step}.yaml"] = templates.render(
            "deploy/kserve/canary_step.yaml.jinja",
            percent=step,
            replicas=_replicas(deployment, step),
            **common,
            **predictor,
        )
    return files


def _arguments(deployment: Deployment) -> tuple[str, ...]:
    ports = {
        f"--http-port={server.HTTP}": f"--http-port={HTTP}",
        f"--grpc-port={server.GRPC}": f"--grpc-port={GRPC}",
    }
    plain = server.arguments(deployment, models=MODELS)
    return (*(ports.get(argument, argument) for argument in plain), *server.restricted("$(ADMIN_KEY)"))


def _storage(deployment: Deployment) -> str:
    """The ``storageUri``. Raises ``TrbError`` for a source that KServe does not fetch as it is."""
    source = deployment.spec.repository.source
    kind = source.kind
    if kind == "oci":
        # 'oci://' alone is a sidecar of the image itself, which needs a shell in it.
        location = sources.image(deployment)
        return f"oci+fetch://{location.registry}/{location.repository}@sha256:{location.revision}"
    if kind in ("s3", "gs"):
        _, prefix = sources.bucket(deployment)
        if kind == "s3":
            _keeps_versions(deployment)
        return prefix
    push = "trb push s3://BUCKET/PREFIX or oci://REGISTRY/NAME, and set repository.source to what it prints"
    reasons = {
        "az": "KServe's address of a blob names the storage account, which az:// does not; " + push,
        "git": "KServe's storage initializer takes no commit of a git repository; " + push,
    }
    raise wrong(
        deployment.file,
        f"'repository.source' is {source.location or kind}, which KServe cannot fetch",
        reasons.get(kind, push),
    )


def _keeps_versions(deployment: Deployment) -> None:
    """Raise REPOSITORY_UNREADABLE for a version folder of empty files.

    KServe's storage initializer skips empty objects of S3, and with the last one the folder:
    https://github.com/kserve/kserve/blob/master/python/storage/kserve_storage/kserve_storage.py
    """
    sizes: dict[str, int] = {}
    for entry in revision.collect(deployment.repository.path).index.entries:
        parts = entry.path.split("/")
        if len(parts) > 2 and parts[1].isdecimal():
            folder = "/".join(parts[:2])
            sizes[folder] = sizes.get(folder, 0) + entry.bytes
    if empty := [folder for folder, size in sizes.items() if not size]:
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"{some(empty)}: only empty files, which KServe leaves out of S3, and Triton needs the folder",
            where=str(deployment.repository.path),
            remedy=f"write a line into one: echo > {empty[0]}/.gitkeep; then push it again",
        )


def _replicas(deployment: Deployment, percent: int) -> int:
    """Replicas of a canary with this share of the traffic: KServe takes as many from the stable version."""
    return max(1, math.ceil(_least(deployment) * percent / ALL))


def _least(deployment: Deployment) -> int:
    stated = deployment.spec.autoscaling
    return stated.least if stated.most else deployment.spec.server.replicas


def _scaling(deployment: Deployment) -> dict[str, Any]:
    """Replicas, and what KEDA scales by."""
    autoscaler = scaling.scaling(deployment, deployment.spec.kubernetes.namespace)
    return {
        "least": _least(deployment),
        "most": autoscaler.most if autoscaler else _least(deployment),
        "scaling": autoscaler,
        "prometheus": deployment.spec.kubernetes.prometheus,
    }


def _monitoring(deployment: Deployment, common: Mapping[str, Any]) -> dict[str, str]:
    """The objects behind KEDA's queries: scraped pods, rules on their series. Empty without autoscaling."""
    if not deployment.spec.autoscaling.most:
        return {}
    pods = f'pod=~"{deployment.name}-v[0-9a-f]+-predictor-.*"'
    groups = scaling.groups(deployment, pods, deployment.spec.kubernetes.namespace)
    return {
        "pod-monitor.yaml": templates.render("deploy/kserve/pod_monitor.yaml.jinja", **common),
        "prometheus-rule.yaml": templates.render(
            "deploy/kserve/prometheus_rule.yaml.jinja", **common, groups=groups
        ),
    }
