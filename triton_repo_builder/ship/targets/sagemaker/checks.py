"""Checks for a deployment that SageMaker would refuse, before anything is written."""

from __future__ import annotations

import re

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.targets import server, sources
from triton_repo_builder.ship.targets.facts import OFFICIAL, Deployment
from triton_repo_builder.ship.targets.sagemaker import container
from triton_repo_builder.ship.targets.spec import wrong

ARCHIVE = "model.tar.gz"
START = range(60, 3601)
"""Seconds that ContainerStartupHealthCheckTimeoutInSeconds may be."""
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[A-Za-z0-9_+=,.@/-]+")
_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/\S+")
_INSTANCE = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9]+")
_MODEL = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,62}")


def location(deployment: Deployment) -> str:
    """``s3://BUCKET/PREFIX`` of the model. Raises ``TrbError`` for what SageMaker would refuse."""
    spec, file = deployment.spec, deployment.file
    stated = spec.sagemaker
    if not _ROLE.fullmatch(stated.role):
        raise wrong(
            file,
            f"'sagemaker.role' is {stated.role!r:.80}, no role's ARN"
            if stated.role
            else "has no 'sagemaker.role'",
            'write role = "arn:aws:iam::ACCOUNT:role/NAME", a role that may read the bucket and the image',
        )
    if not _IMAGE.fullmatch(spec.server.image):
        raise wrong(
            file,
            f"'server.image' is {deployment.image}, and SageMaker takes images of Amazon ECR only",
            f"copy it there: skopeo copy docker://{OFFICIAL}:{deployment.release.name}-py3 "
            "docker://ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG; write that into server.image, and its "
            "release into server.release",
        )
    if not _INSTANCE.fullmatch(stated.instance):
        raise wrong(
            file, f"'sagemaker.instance' is {stated.instance!r:.40}", "write for example ml.m5.xlarge"
        )
    if spec.server.gpus and stated.instance.partition(".")[2][:1] not in "gp":
        raise wrong(
            file,
            f"'server.gpus' is {spec.server.gpus}, but {stated.instance} has no GPU",
            "name an instance such as ml.g5.xlarge in sagemaker.instance",
        )
    if stated.stable and not _MODEL.fullmatch(stated.stable):
        raise wrong(file, f"'sagemaker.stable' is {stated.stable!r:.80}, no name of a model", "correct it")
    if (start := server.times(deployment).start) not in START:
        raise wrong(file, f"'server.start' is {start} s", "SageMaker waits from 1m to 1h for a container")
    _layout(deployment)
    container.endpoint(deployment)
    return _bucket(deployment)


def _bucket(deployment: Deployment) -> str:
    """Where the model is, or is uploaded to."""
    source, file = deployment.spec.repository.source, deployment.file
    if source.kind == "s3":
        location, prefix = sources.bucket(deployment)
        if location.endpoint:
            raise wrong(file, f"SageMaker reads Amazon's S3 only, not {source.location}", "push it there")
        return prefix
    stated = deployment.spec.sagemaker.bucket
    if not stated.startswith("s3://"):
        raise wrong(
            file,
            f"'sagemaker.bucket' is {stated!r:.80}, no URL" if stated else "has no 'sagemaker.bucket'",
            'write bucket = "s3://BUCKET/PREFIX", for the archive; or push it and set repository.source',
        )
    try:
        target = stores.parse(stated)
    except TrbError as error:
        raise wrong(
            file, f"'sagemaker.bucket': {error.message}", 'write bucket = "s3://BUCKET/PREFIX"'
        ) from None
    assert isinstance(target, Bucket)
    if target.endpoint or target.revision:
        raise wrong(file, "'sagemaker.bucket' must be s3://BUCKET/PREFIX", "leave out host and revision")
    return f"s3://{target.root}/{deployment.name}/{deployment.revision[:12]}/{ARCHIVE}"


def _layout(deployment: Deployment) -> None:
    """Raise REPOSITORY_UNREADABLE for a model in place of the repository: the container would not start."""
    if (deployment.repository.path / repository.CONFIG).is_file():
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"has a {repository.CONFIG} at its top, with which SageMaker's container does not start",
            where=str(deployment.repository.path),
            remedy="name the folder of model directories",
        )
