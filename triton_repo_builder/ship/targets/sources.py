"""Where a platform gets the repository: addresses of the revision, proven to be the folder's."""

from __future__ import annotations

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import oci_manifest, revision
from triton_repo_builder.ship.stores.bucket import REVISIONS
from triton_repo_builder.ship.stores.location import Bucket, Image
from triton_repo_builder.ship.targets.facts import Deployment


def bucket(deployment: Deployment) -> tuple[Bucket, str]:
    """The location of a source that is a bucket, and the prefix of its revision's files: ``s3://…/``.

    The prefix ends with a slash: beside the files are the revision's index and its signatures, whose names
    begin like it. Raises ``TrbError`` BAD_LOCATION, DIGEST_MISMATCH.
    """
    location = stores.parse(deployment.spec.repository.source.location)
    assert isinstance(location, Bucket)
    _same(deployment, location.revision, deployment.revision)
    return location, f"{location.scheme}://{location.root}/{REVISIONS}/{location.revision}/"


def image(deployment: Deployment) -> Image:
    """The location of a source that is an image. Raises ``TrbError`` BAD_LOCATION, DIGEST_MISMATCH."""
    location = stores.parse(deployment.spec.repository.source.location)
    assert isinstance(location, Image)
    pushed = oci_manifest.image(revision.collect(deployment.repository.path)).digest
    _same(deployment, location.revision, pushed.removeprefix("sha256:"))
    return location


def _same(deployment: Deployment, stated: str, actual: str) -> None:
    if stated != actual:
        raise TrbError(
            Code.DIGEST_MISMATCH,
            f"'repository.source' has sha256:{stated[:12]}…, but {deployment.repository.path} is pushed as "
            f"sha256:{actual[:12]}…",
            where=str(deployment.file),
            remedy="push that folder, and write the address that 'trb push' prints",
        )
