"""An OCI registry as a store: one image per revision, identified by its digest; the tag is the pointer."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from triton_repo_builder import transfer
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.files import DAMAGED, load_json
from triton_repo_builder.stores import location, oci_layers
from triton_repo_builder.stores.failures import explained
from triton_repo_builder.stores.location import Image
from triton_repo_builder.stores.oci_client import HINTS, MANIFEST, REPAIR, Client
from triton_repo_builder.stores.oci_layers import Layer
from triton_repo_builder.stores.revision import DIGEST, LocalRevision, collect, mismatch
from triton_repo_builder.stores.store import Hints, Progress, Pulled, Pushed, overtaken

CONFIG = "application/vnd.oci.image.config.v1+json"
TAR = "application/vnd.oci.image.layer.v1.tar"
REVISION = "trb.revision"
UNREADABLE = (Code.DIGEST_MISMATCH, Code.STORAGE_FAILED)
"""A damaged manifest as clients see it: another one, or error 500 if the registry cannot parse it."""


class RegistryStore:
    """Images of one name in one registry."""

    FORMS: ClassVar[str] = "oci://REGISTRY/NAME:TAG"
    HINTS: ClassVar[Hints] = HINTS

    def __init__(self, location: Image) -> None:
        self.location = location
        self._client = Client(location)
        self._name = f"oci://{location.registry}/{location.repository}"

    @classmethod
    def parse(cls, text: str, rest: str, revision: str) -> Image:
        return location.image(text, rest, revision)

    def serve_from(self, target: Path, progress: Progress) -> str:
        """Empty: Triton does not read images."""
        return ""

    def push(self, local: LocalRevision, progress: Progress, *, dry_run: bool = False) -> Pushed:
        """Send the blobs that are missing, then the manifest by its digest, at last the tag."""
        parts = oci_layers.split(local)
        labels = {REVISION: f"sha256:{local.index.digest}", **local.labels}
        config = _config(parts, labels)
        manifest = _manifest(parts, config, labels)
        digest = _digest(manifest)
        with explained(self.HINTS, str(self.location)):
            before = self._current_revision()
            sent = self._send(parts, config, progress, dry_run=dry_run)
            if not dry_run:
                self._client.put_manifest(digest, manifest)
                self._check_arrived(digest)
                before = self._tag(digest, manifest)
        return Pushed(
            location=str(self.location),
            revision=digest,
            pinned=f"{self._name}@{digest}",
            previous=before,
            files=len(local.index.entries),
            bytes=local.index.bytes,
            sent=tuple(blob for blob, _ in sent),
            sent_bytes=sum(size for _, size in sent),
            labels=labels,
            dry_run=dry_run,
        )

    def pull(self, target: Path, progress: Progress) -> Pulled:
        """Write the files of the image below ``target``, an empty folder, each layer verified."""
        with explained(self.HINTS, str(self.location)):
            digest, manifest = self._manifest()
            layers, stated = self._parts(manifest)
            total = sum(size for _, size in layers)
            done = 0
            for layer, size in layers:
                progress(layer, done, total)
                self._unpack(layer, target)
                done += size
            progress("", total, total)
            local = collect(target)
            actual = f"sha256:{local.index.digest}"
            if stated not in (None, actual):
                raise mismatch(str(self.location), actual, stated, REPAIR)
        return Pulled(
            location=str(self.location),
            revision=digest,
            files=len(local.index.entries),
            bytes=local.index.bytes,
            target=str(target),
        )

    def _send(
        self, parts: tuple[Layer, ...], config: bytes, progress: Progress, *, dry_run: bool
    ) -> list[tuple[str, int]]:
        sent: list[tuple[str, int]] = []
        total, done = sum(part.size for part in parts) + len(config), 0
        blobs = [(part.digest, part.size, part.blocks) for part in parts]
        blobs.append((_digest(config), len(config), lambda: iter([config])))
        for digest, size, blocks in blobs:
            progress(digest, done, total)
            # Read back, both what was there and what was sent: a registry that has a file under a digest
            # keeps that file, damaged or not, discards what is sent, and answers that all is well.
            if self._client.size(digest) != size or self._client.digest(digest) != digest:
                sent.append((digest, size))
                if not dry_run:
                    self._client.put_blob(digest, blocks(), size)
                    actual = self._client.digest(digest)
                    if actual != digest:
                        raise self._damaged(digest, f"has sha256 {actual}" if actual else "cannot be read")
            done += size
        progress("", done, total)
        return sent

    def _current_revision(self) -> str:
        """Digest of the tag's image; empty if there is none, or its manifest is damaged."""
        try:
            manifest = self._client.manifest(self.location.tag) if self.location.tag else None
        except TrbError as error:
            if error.code not in UNREADABLE:
                raise
            manifest = None
        return manifest[0] if manifest else ""

    def _tag(self, digest: str, manifest: bytes) -> str:
        """Move the tag; returns its previous value: another push may have moved it since ours began."""
        before = self._current_revision()
        if self.location.tag and before != digest:
            self._client.put_manifest(self.location.tag, manifest)
            now = self._current_revision()
            if now != digest:
                raise overtaken(str(self.location), now, f"{self._name}@{digest}")
        return before

    def _check_arrived(self, digest: str) -> None:
        try:
            manifest = self._client.manifest(digest)
        except TrbError as error:
            if error.code not in UNREADABLE:
                raise
            raise self._damaged(digest, error.message) from error
        if manifest is None:
            raise self._damaged(digest, "is not there")

    def _damaged(self, digest: str, what: str) -> TrbError:
        """The error for a registry that keeps something else under a digest."""
        hexed = digest.removeprefix("sha256:")
        return TrbError(
            Code.DIGEST_MISMATCH,
            f"is damaged in the registry ({what}), which did not replace it with what was just sent",
            where=f"{self._name}@{digest}",
            remedy="ask the registry's administrator to remove it from the storage (docker-registry: the "
            f"folder docker/registry/v2/blobs/sha256/{hexed[:2]}/{hexed}; and restart it), then push again",
        )

    def _manifest(self) -> tuple[str, dict[str, Any]]:
        """Digest and manifest of the location's image."""
        answer = self._client.manifest(self.location.reference)
        if answer is None:
            raise TrbError(
                Code.NOT_PUSHED,
                "there is no such image",
                where=str(self.location),
                remedy=f"push first: trb push {self.location} REPO",
            )
        digest, document = answer
        try:
            manifest = load_json(document)
        except ValueError as error:
            raise self._no_manifest(error) from None
        if not isinstance(manifest, dict):
            raise self._no_manifest(ValueError("no object"))
        if "layers" not in manifest:
            raise TrbError(
                Code.NOT_PUSHED,
                "not a single image but a list of images",
                where=str(self.location),
                remedy="name one of them by its digest",
            )
        return digest, manifest

    def _parts(self, manifest: dict[str, Any]) -> tuple[list[tuple[str, int]], str | None]:
        """(digest, bytes) of each layer, and the revision that the annotations state."""
        try:
            layers = [(str(layer["digest"]), int(layer["size"])) for layer in manifest["layers"]]
            stated = (manifest.get("annotations") or {}).get(REVISION)
        except DAMAGED as error:
            raise self._no_manifest(error) from None
        if not all(DIGEST.fullmatch(digest) for digest, _ in layers):
            raise self._no_manifest(ValueError("a layer's digest is no sha256"))
        return layers, None if stated is None else str(stated)

    def _no_manifest(self, error: Exception) -> TrbError:
        return TrbError(
            Code.STORAGE_FAILED,
            f"is not the manifest of an image: {type(error).__name__} {error}",
            where=str(self.location),
            remedy=REPAIR,
        )

    def _unpack(self, digest: str, target: Path) -> None:
        """One layer: fetched whole, verified, then unpacked, and only its files under ``models/``."""
        with tempfile.TemporaryDirectory(prefix=".trb-", dir=target.parent) as scratch:
            layer = Path(scratch) / "layer"
            expected = digest.removeprefix("sha256:")
            actual = transfer.receive(self._client.blob(digest), layer, expected)
            if actual != expected:
                raise mismatch(f"{self._name}@{digest}", f"sha256:{actual}", digest, REPAIR)
            with tarfile.open(layer, mode="r:*") as archive:
                for member in archive:
                    path = member.name.removeprefix("./").removeprefix("/")
                    if not member.isreg() or not path.startswith(f"{oci_layers.ROOT}/"):
                        continue
                    path = path.removeprefix(f"{oci_layers.ROOT}/")
                    transfer.check_inside(path, str(self.location))
                    stream = archive.extractfile(member)
                    assert stream is not None  # It is a regular file.
                    file = target / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with stream, file.open("wb") as sink:
                        sink.writelines(transfer.blocks(stream))


def _config(parts: tuple[Layer, ...], labels: dict[str, str]) -> bytes:
    """Configuration of an image that runs nothing: it is mounted for its files."""
    return _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [part.digest for part in parts]},
        }
    )


def _manifest(parts: tuple[Layer, ...], config: bytes, labels: dict[str, str]) -> bytes:
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": TAR, "digest": part.digest, "size": part.size} for part in parts],
            "annotations": labels,
        }
    )


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
