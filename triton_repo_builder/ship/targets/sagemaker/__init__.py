"""``trb export sagemaker``: requests of SageMaker's API as JSON, and the model's archive.

The AWS CLI sends a file with ``--cli-input-json``. Fields:
https://docs.aws.amazon.com/sagemaker/latest/APIReference/
"""

from __future__ import annotations

from triton_repo_builder.ship.rendered import Stream, document
from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets.archive import archive
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.sagemaker import checks, rollout, variants
from triton_repo_builder.ship.targets.sagemaker.container import container

ARCHIVE = "model.tar.gz"


def render(deployment: Deployment) -> dict[str, str | Stream]:
    """The requests, path → JSON, and the archive unless the source is a bucket. Raises ``TrbError``."""
    bucket = checks.location(deployment)
    described = container(deployment, bucket)
    name = deployment.name
    model = f"{name}-{variants.tag(described)}"
    tags = [
        {"Key": "app.kubernetes.io/managed-by", "Value": "trb"},
        {"Key": "io.github.triton-repo-builder.revision", "Value": f"sha256:{deployment.revision}"},
    ]
    alone = variants.variant(deployment, variants.SERVER, model)
    config = variants.config(name, tags, ProductionVariants=[alone])
    endpoint = {"EndpointName": name, "EndpointConfigName": config["EndpointConfigName"]}
    requests = {
        "create-model": {
            "ModelName": model,
            "PrimaryContainer": described,
            "ExecutionRoleArn": deployment.spec.sagemaker.role,
            "Tags": tags,
        },
        "create-endpoint-config": config,
        "create-endpoint": {**endpoint, "Tags": tags},
        "update-endpoint": {**endpoint, "DeploymentConfig": rollout.rollout(deployment)},
        **rollout.alarms(deployment),
        **rollout.autoscaling(deployment),
        **rollout.alarms_beside_stable(deployment),
        **variants.beside_stable(deployment, model, config["EndpointConfigName"], tags),
    }
    files: dict[str, str | Stream] = {f"{path}.json": document(body) for path, body in requests.items()}
    if deployment.spec.repository.source.kind != "s3":
        files[ARCHIVE] = archive(revision.collect(deployment.repository.path))
    return files
