"""What was pushed: pointers, indexes, images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.reliability import mutate
from tests.reliability.readers.reader import (
    REPOSITORY,
    TARGET,
    Reader,
    write,
)


class _Bucket:
    """As much of an fsspec file system as a pull needs, over a dictionary."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path][start:end]

    def info(self, path: str) -> dict[str, Any]:
        return {"size": len(self.cat_file(path))}

    def ls(self, path: str) -> list[str]:
        return list(self._files)


def _bucket_seeds() -> list[bytes]:
    from triton_repo_builder.ship.stores import revision

    local = revision.collect(REPOSITORY)
    digest = local.index.digest
    pointer = {"schema": 1, "revision": f"sha256:{digest}", "path": f"revisions/{digest}", "labels": {}}
    content = hashlib.sha256(b"x").hexdigest()
    small = {"schema": 1, "files": {"a/config.pbtxt": {"sha256": content, "bytes": 1}}}
    return [
        b"index\n" + local.index.document,
        f"index\n{json.dumps(small)}".encode(),
        f"pointer\n{json.dumps(pointer)}".encode(),
    ]


def _bucket(case: Path) -> None:
    from triton_repo_builder.ship.stores import revision
    from triton_repo_builder.ship.stores.location import Bucket
    from triton_repo_builder.ship.stores.s3 import S3Store

    kind, _, content = (case / "input").read_bytes().partition(b"\n")
    index = content if kind == b"index" else revision.collect(REPOSITORY).index.document
    digest = hashlib.sha256(index).hexdigest()
    pointer = content if kind == b"pointer" else json.dumps({"revision": f"sha256:{digest}"}).encode()
    files = {"b/p/current.json": pointer, f"b/p/revisions/{digest}.json": index}
    try:
        listed = json.loads(index)["files"]
        files |= {f"b/p/revisions/{digest}/{path}": b"x" for path in listed}
    except Exception:
        listed = ()
    store = S3Store(Bucket(scheme="s3", bucket="b", prefix="p"), _Bucket(files))
    store.pull(case / TARGET, lambda *_: None)


class _Registry:
    """As much of a registry's client as a pull needs."""

    def __init__(self, manifest: bytes, layer: bytes) -> None:
        self._manifest, self._layer = manifest, layer

    def manifest(self, reference: str) -> tuple[str, bytes]:
        return f"sha256:{hashlib.sha256(self._manifest).hexdigest()}", self._manifest

    def blob(self, digest: str) -> Iterator[bytes]:
        yield self._layer


@cache
def _image_parts() -> tuple[bytes, bytes]:
    """A manifest, and its one layer."""
    from triton_repo_builder.base.files import File
    from triton_repo_builder.ship.stores import oci_layers, oci_manifest

    files = (
        File(path="a/config.pbtxt", content=b'name: "a"\n'),
        File(path="a/1/model.py", content=b"x" * 600),
    )
    layer = oci_layers._layer(files)
    return oci_manifest.manifest((layer,), b"{}", {"trb.x": "y"}), b"".join(layer.blocks())


def _oci(manifest: bytes, layer: bytes, case: Path) -> None:
    from triton_repo_builder.ship.stores.location import Image
    from triton_repo_builder.ship.stores.registry import RegistryStore

    store = RegistryStore(Image(registry="localhost:1", repository="x", tag="latest"))
    store._client = _Registry(manifest, layer)  # type: ignore[assignment]
    (case / TARGET / "pulled").mkdir()
    store.pull(case / TARGET / "pulled", lambda *_: None)


def _oci_manifest(case: Path) -> None:
    _oci((case / "input").read_bytes(), _image_parts()[1], case)


def _oci_layer(case: Path) -> None:
    layer = (case / "input").read_bytes()
    manifest = json.loads(_image_parts()[0])
    manifest["layers"][0] |= {"digest": f"sha256:{hashlib.sha256(layer).hexdigest()}", "size": len(layer)}
    _oci(json.dumps(manifest).encode(), layer, case)


def _target(case: Path) -> None:
    (case / TARGET).mkdir()


READERS = (
    Reader(
        name="bucket",
        about="pointer and index of a revision in a bucket",
        seeds=_bucket_seeds,
        damage=mutate.named(mutate.damaged_json),
        base=_target,
        lay=write("input"),
        read=_bucket,
        fresh=True,
        writes=(TARGET,),
        share=0.3,
    ),
    Reader(
        name="oci-manifest",
        about="manifest of an image",
        seeds=lambda: [_image_parts()[0]],
        damage=mutate.damaged_json,
        base=_target,
        lay=write("input"),
        read=_oci_manifest,
        fresh=True,
        writes=(TARGET,),
        share=0.5,
    ),
    Reader(
        name="oci-layer",
        about="layers of an image",
        seeds=lambda: [_image_parts()[1]],
        damage=mutate.damaged_tar,
        base=_target,
        lay=write("input"),
        read=_oci_layer,
        fresh=True,
        writes=(f"{TARGET}/pulled", f"{TARGET}/.trb-"),
        share=0.5,
    ),
)
