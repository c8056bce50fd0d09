"""``trb export oci``: the repository as an image in a folder; its digest is that of ``trb push oci://``.

Image layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

from triton_repo_builder.ship.rendered import Stream, document
from triton_repo_builder.ship.stores import oci_manifest, revision
from triton_repo_builder.ship.stores.oci_client import MANIFEST
from triton_repo_builder.ship.targets.facts import Deployment

INDEX = "application/vnd.oci.image.index.v1+json"


def render(deployment: Deployment) -> dict[str, str | Stream]:
    """The layout: its version, its index, and a blob for each layer, the configuration and the manifest."""
    image = oci_manifest.image(revision.collect(deployment.repository.path))
    descriptor = {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": {"org.opencontainers.image.ref.name": deployment.name},
    }
    blobs: dict[str, str | Stream] = {
        _path(oci_manifest.digest(content)): content.decode() for content in (image.config, image.manifest)
    }
    for layer in image.layers:
        blobs[_path(layer.digest)] = Stream(
            size=layer.size, sha256=layer.digest.partition(":")[2], blocks=layer.blocks
        )
    return {
        "oci-layout": document({"imageLayoutVersion": "1.0.0"}),
        "index.json": document({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor]}),
        **blobs,
    }


def _path(digest: str) -> str:
    algorithm, _, encoded = digest.partition(":")
    return f"blobs/{algorithm}/{encoded}"
