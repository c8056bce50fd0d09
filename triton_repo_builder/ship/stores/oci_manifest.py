"""The two documents of a model image: the same bytes for the same layers and labels."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from triton_repo_builder.ship.stores import oci_layers
from triton_repo_builder.ship.stores.oci_client import MANIFEST
from triton_repo_builder.ship.stores.oci_layers import Layer
from triton_repo_builder.ship.stores.revision import LocalRevision

REVISION = "trb.revision"
"""Label and annotation of an image: the revision of its files."""
CONFIG = "application/vnd.oci.image.config.v1+json"
TAR = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, kw_only=True)
class ModelImage:
    """The image of a revision, as every push and export makes it."""

    layers: tuple[Layer, ...]
    labels: dict[str, str]
    config: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        """``sha256:…`` of the manifest, which names the image."""
        return digest(self.manifest)


def image(local: LocalRevision) -> ModelImage:
    """The image of a repository; equal files and provenance give the same digest."""
    layers = oci_layers.split(local)
    labels = {REVISION: f"sha256:{local.index.digest}", **local.labels}
    document = config(layers, labels)
    return ModelImage(
        layers=layers, labels=labels, config=document, manifest=manifest(layers, document, labels)
    )


def config(parts: tuple[Layer, ...], labels: dict[str, str]) -> bytes:
    """Configuration of an image that runs nothing: it is mounted for its files."""
    return _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [part.digest for part in parts]},
        }
    )


def manifest(parts: tuple[Layer, ...], config: bytes, labels: dict[str, str]) -> bytes:
    """The manifest, whose digest names the image."""
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": TAR, "digest": part.digest, "size": part.size} for part in parts],
            "annotations": labels,
        }
    )


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode()


def digest(data: bytes) -> str:
    """``sha256:…`` of a document."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
