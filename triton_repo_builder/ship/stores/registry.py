"""An OCI registry as a store: one image per revision, identified by its digest; the tag is the pointer."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from triton_repo_builder.base import transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.ship.stores import (
    location,
    oci_layers,
    oci_manifest,
    registry_tags,
    retries,
    signature,
)
from triton_repo_builder.ship.stores.failures import explained
from triton_repo_builder.ship.stores.location import Image
from triton_repo_builder.ship.stores.oci_client import HINTS, REPAIR, Client
from triton_repo_builder.ship.stores.oci_layers import Layer
from triton_repo_builder.ship.stores.oci_manifest import REVISION
from triton_repo_builder.ship.stores.revision import DIGEST, LocalRevision, collect, mismatch, stated_size
from triton_repo_builder.ship.stores.signature import Subject, stated_key
from triton_repo_builder.ship.stores.signing_keys import Signer
from triton_repo_builder.ship.stores.store import Hints, Progress, Pulled, Pushed, Stored, overtaken

UNREADABLE = (Code.DIGEST_MISMATCH, Code.STORAGE_FAILED)
"""Errors by which a damaged manifest shows: other content, or status 500 if the registry cannot parse it."""


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

    def push(
        self,
        local: LocalRevision,
        progress: Progress,
        *,
        dry_run: bool = False,
        signer: Signer | None = None,
    ) -> Pushed:
        """Send the blobs that are missing, the manifest by its digest, its signature, at last the tag."""
        image = oci_manifest.image(local)
        digest, manifest = image.digest, image.manifest
        with explained(self.HINTS, str(self.location)):
            before = self._current_revision()
            sent = self._send(image.layers, image.config, progress, dry_run=dry_run)
            if not dry_run:
                self._client.put_manifest(digest, manifest)
                self._check_arrived(digest)
                if signer is not None:  # before it is current: who asks for signatures sees no gap
                    subject = Subject(revision=image.labels[REVISION], image=digest)
                    document = signature.sign(subject, local.index.entries, self, signer)
                    registry_tags.write_signature(self._client, digest, signer.public.id, document)
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
            labels=image.labels,
            signed_by=signer.public.fingerprint if signer else "",
            dry_run=dry_run,
        )

    def subject(self) -> Subject:
        with explained(self.HINTS, str(self.location)):
            digest, manifest = self._manifest()
            _, stated = self._parts(manifest)
        return Subject(revision=stated or "", image=digest)

    def signature(self, subject: Subject, key: str) -> bytes | None:
        with explained(self.HINTS, str(self.location)):
            return registry_tags.read_signature(self._client, subject.image, key)

    def signers(self, subject: Subject) -> tuple[str, ...]:
        with explained(self.HINTS, str(self.location)):
            signatures = registry_tags.signatures(self._client.tags())
        return tuple(key for digest, key in signatures if digest == subject.image)

    def revisions(self) -> tuple[Stored, ...]:
        with explained(self.HINTS, str(self.location)):
            tags = self._client.tags()
            holds = self._holds(tags)
            if not any("current" in reasons for reasons in holds.values()):
                raise self._not_pushed()
            pushed = {digest: time for time, digest in registry_tags.moves(tags)}
            images = [self._stored(digest, pushed, holds, tags) for digest in {**pushed, **holds}]
        return tuple(sorted(filter(None, images), key=lambda stored: stored.pushed, reverse=True))

    def remove(self, revision: str) -> bool:
        with explained(self.HINTS, str(self.location)):
            tags = self._client.tags()
            if self._holds(tags).get(revision):
                return False
            self._client.delete_manifest(revision)
            for digest, key in registry_tags.signatures(tags):
                signature = self._client.manifest(registry_tags.signature_tag(digest, key))
                if digest == revision and signature is not None:
                    self._client.delete_manifest(signature[0])
        return True

    def leftovers(self) -> tuple[str, ...]:
        """Images that are gone while their signatures are there."""
        with explained(self.HINTS, str(self.location)):
            signed = dict.fromkeys(digest for digest, _ in registry_tags.signatures(self._client.tags()))
            return tuple(digest for digest in signed if self._client.manifest(digest) is None)

    def _holds(self, tags: list[str]) -> dict[str, list[str]]:
        """Images that tags name, and the one before the current one, with the reasons to keep them."""
        holds: dict[str, list[str]] = {}
        for tag in tags:
            if registry_tags.ours(tag):
                continue
            tagged = self._client.manifest(tag)
            if tagged is None:
                continue
            reason = "current" if tag == self.location.tag else f"tag {tag}"
            # A list of images refers to each of them.
            try:
                listed = [each["digest"] for each in load_json(tagged[1]).get("manifests") or ()]
            except DAMAGED as error:
                raise self._no_manifest(error) from None
            for digest in (tagged[0], *listed):
                holds.setdefault(digest, []).append(reason)
        current = next((digest for digest, reasons in holds.items() if "current" in reasons), "")
        moves = [digest for _, digest in registry_tags.moves(tags)]
        end = len(moves) - moves[::-1].index(current) if current in moves else len(moves)
        previous = next((digest for digest in reversed(moves[:end]) if digest != current), "")
        if current and previous:
            holds.setdefault(previous, []).append("previous")
        return holds

    def _stored(
        self, digest: str, pushed: dict[str, str], holds: dict[str, list[str]], tags: list[str]
    ) -> Stored | None:
        """An image; None if it is gone, or not one of ours."""
        image = self._client.manifest(digest)
        try:
            manifest = load_json(image[1]) if image else {}
            annotations = {str(key): str(value) for key, value in (manifest.get("annotations") or {}).items()}
        except DAMAGED as error:
            raise self._no_manifest(error) from None
        if REVISION not in annotations or "layers" not in manifest:
            return None
        layers, _ = self._parts(manifest)
        keys = [key for signed, key in registry_tags.signatures(tags) if signed == digest]
        documents = (registry_tags.read_signature(self._client, digest, key) or b"" for key in keys)
        return Stored(
            revision=digest,
            pushed=pushed.get(digest, ""),
            bytes=sum(size for _, size in layers),
            labels=annotations,
            signed_by=tuple(stated_key(document) for document in documents),
            holds=tuple(holds.get(digest, ())),
        )

    def pull(self, target: Path, progress: Progress) -> Pulled:
        """Write the files of the image below ``target``, an empty folder, each layer verified."""
        with explained(self.HINTS, str(self.location)):
            digest, manifest = self._manifest()
            layers, stated = self._parts(manifest)
            total = sum(size for _, size in layers)
            done, room = 0, oci_layers.Room(total)
            for layer, size in layers:
                progress(layer, done, total)
                self._unpack(layer, size, target, room)
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
        blobs.append((oci_manifest.digest(config), len(config), lambda: iter([config])))
        for digest, size, blocks in blobs:
            progress(digest, done, total)
            # Read back, both what was there and what was sent: a registry that has a file under a digest
            # keeps that file, damaged or not, discards what is sent, and answers that all is well.
            if self._client.size(digest) != size or self._client.digest(digest, size) != digest:
                sent.append((digest, size))
                if not dry_run:
                    self._client.put_blob(digest, blocks(), size)
                    actual = self._client.digest(digest, size)
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
        """Move the tag; returns its previous value, which another push may have set since this one began."""
        before = self._current_revision()
        if self.location.tag and before != digest:
            tags: list[str] = []
            with suppress(TrbError):  # who may push may not be allowed to list
                tags = self._client.tags()
            self._client.put_manifest(registry_tags.moved(digest, tags), manifest)
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

    def _damaged(self, digest: str, reason: str) -> TrbError:
        """The error for a registry that keeps something else under a digest."""
        hexed = digest.removeprefix("sha256:")
        return TrbError(
            Code.DIGEST_MISMATCH,
            f"is damaged in the registry ({reason}), which did not replace it with what was just sent",
            where=f"{self._name}@{digest}",
            remedy="ask the registry's administrator to remove it from the storage (docker-registry: the "
            f"folder docker/registry/v2/blobs/sha256/{hexed[:2]}/{hexed}; and restart it), then push again",
        )

    def _manifest(self) -> tuple[str, dict[str, Any]]:
        """Digest and manifest of the location's image."""
        answer = self._client.manifest(self.location.reference)
        if answer is None:
            raise self._not_pushed()
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
            layers = [(str(layer["digest"]), stated_size(layer["size"])) for layer in manifest["layers"]]
            stated = (manifest.get("annotations") or {}).get(REVISION)
        except DAMAGED as error:
            raise self._no_manifest(error) from None
        if not all(DIGEST.fullmatch(digest) for digest, _ in layers):
            raise self._no_manifest(ValueError("a layer's digest is no sha256"))
        if len(layers) > oci_layers.LAYERS:
            raise self._no_manifest(ValueError(f"{len(layers):,} layers, at most {oci_layers.LAYERS}"))
        return layers, None if stated is None else str(stated)

    def _no_manifest(self, error: Exception) -> TrbError:
        return TrbError(
            Code.STORAGE_FAILED,
            f"is not the manifest of an image: {type(error).__name__} {error}",
            where=str(self.location),
            remedy=REPAIR,
        )

    def _not_pushed(self) -> TrbError:
        return TrbError(
            Code.NOT_PUSHED,
            "there is no such image",
            where=str(self.location),
            remedy=f"push first: trb push {self.location} REPO",
        )

    def _unpack(self, digest: str, size: int, target: Path, room: oci_layers.Room) -> None:
        """One layer: fetched whole, verified, then unpacked, and only its files under ``models/``."""
        with tempfile.TemporaryDirectory(prefix=".trb-", dir=target.parent) as scratch:
            layer = Path(scratch) / "layer"
            expected = digest.removeprefix("sha256:")
            where = f"{self._name}@{digest}"
            # From its start: what arrived of a connection that was dropped proves nothing.
            actual = retries.patiently(
                lambda: transfer.receive(self._client.blob(digest), layer, expected, size, where)
            )
            if actual != expected:
                raise mismatch(where, f"sha256:{actual}", digest, REPAIR)
            oci_layers.unpack(layer, target, where, room)
