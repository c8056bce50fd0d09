"""The container of a model: its image, its model, its environment.

What its start makes of them: https://github.com/triton-inference-server/server/blob/main/docker/sagemaker/serve
"""

from __future__ import annotations

import math
from typing import Any

from triton_repo_builder.base.text import some
from triton_repo_builder.repository import Model
from triton_repo_builder.run.serve.processes import shared_memory
from triton_repo_builder.ship.targets import server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import wrong

MEBI = 1 << 20
SHARED_MEMORY = 64 * MEBI
"""Bytes of a container's /dev/shm: SageMaker takes no other size
(https://github.com/aws/amazon-sagemaker-examples/issues/3506), and this is Docker's."""
LARGEST_REGION = 16 * MEBI
"""First bytes of a Python instance if nothing is set."""
THREADS = 8
"""Threads that take requests, at least: Triton's default."""


def container(deployment: Deployment, location: str) -> dict[str, Any]:
    """The container of CreateModel; ``location`` is where the model is."""
    if deployment.spec.repository.source.kind == "s3":
        data: dict[str, Any] = {
            "ModelDataSource": {
                "S3DataSource": {"S3Uri": location, "S3DataType": "S3Prefix", "CompressionType": "None"}
            }
        }
    else:
        data = {"ModelDataUrl": location}
    return {
        "Image": deployment.image,
        "Mode": "SingleModel",
        **data,
        "Environment": environment(deployment),
    }


def environment(deployment: Deployment) -> dict[str, str]:
    """Environment of the container. Raises ``TrbError`` USAGE if /dev/shm cannot hold its Python models."""
    region = _region(deployment)
    options = ["--exit-on-error=true", "--strict-readiness=true"]
    options += ["--disable-auto-complete-config"] if deployment.complete else []
    options += [f"--exit-timeout-secs={server.times(deployment).stop}"]
    threads = max(THREADS, math.ceil(deployment.spec.server.cpus))
    return {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": endpoint(deployment),
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
        "SAGEMAKER_TRITON_THREAD_COUNT": str(threads),
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": str(region),
        "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE": str(MEBI),
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS": " ".join(options),
    }


def endpoint(deployment: Deployment) -> str:
    """The model that requests reach. Raises ``TrbError`` USAGE."""
    stated, endpoints = deployment.spec.sagemaker.endpoint, deployment.endpoints
    if stated and stated not in endpoints:
        raise wrong(
            deployment.file,
            f"'sagemaker.endpoint' is {stated!r:.80}, no endpoint of {deployment.repository.path}",
            f"name one of {', '.join(endpoints)}",
        )
    if not stated and len(endpoints) > 1:
        raise wrong(
            deployment.file,
            f"the repository has {len(endpoints)} endpoints, {some(endpoints)}, and SageMaker serves one",
            "name it in sagemaker.endpoint, or build a repository for each",
        )
    return stated or endpoints[0]


def _region(deployment: Deployment) -> int:
    """First bytes of each Python instance: half of /dev/shm, so that regions can grow."""
    instances = sum(map(_instances, deployment.repository.models))
    if instances * MEBI > SHARED_MEMORY:
        raise wrong(
            deployment.file,
            f"{instances} Python instances need {instances} MiB of shared memory, and SageMaker's container "
            f"has {SHARED_MEMORY // MEBI}",
            "build it with fewer instances",
        )
    return max(MEBI, min(LARGEST_REGION, SHARED_MEMORY // 2 // max(1, instances) // MEBI * MEBI))


def _instances(model: Model) -> int:
    if model.backend != "python":
        return 0
    default = shared_memory.DEFAULT["python"]
    return sum(group.count or default for group in model.config.instance_groups) or default
