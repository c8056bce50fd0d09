"""Tags of trb in a registry, which lists nothing but tags: when an image became current, and who signed it.

trb-TIME-DIGEST        the image DIGEST became current at TIME; it also keeps the image from being collected
sha256-DIGEST.sig-KEY  a small artefact whose only layer is the signature of the image by one key
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import datetime

from triton_repo_builder.base import transfer
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.ship.stores import pointer, sigstore_bundle
from triton_repo_builder.ship.stores.oci_client import MANIFEST, Client
from triton_repo_builder.ship.stores.revision import DIGEST

EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
FILE = "model.sig"
"""Name under which ``oras pull`` writes a signature."""
FORMER_ANNOTATION = "trb.signature"
"""Where a signature in trb's former format is."""
_TIME = "%Y%m%dT%H%M%S.%fZ"
_MOVE = re.compile(r"trb-(\d{8}T\d{6}\.\d{6}Z)-([0-9a-f]{64})")
_SIGNATURE = re.compile(r"sha256-([0-9a-f]{64})\.sig-([0-9a-f]{32})")


def moved(digest: str, tags: Iterable[str]) -> str:
    """Tag for an image (``sha256:…``) that becomes current now, after those whose tags are there."""
    before = moves(tags)
    time = datetime.fromisoformat(pointer.after(before[-1][0] if before else "").replace("Z", "+00:00"))
    return f"trb-{time.strftime(_TIME)}-{digest.removeprefix('sha256:')}"


def moves(tags: Iterable[str]) -> list[tuple[str, str]]:
    """ISO time and digest (``sha256:…``) of each move, the oldest first."""
    moved = sorted((match[1], match[2]) for tag in tags if (match := _MOVE.fullmatch(tag)))
    return [(_iso(time), f"sha256:{digest}") for time, digest in moved]


def _iso(time: str) -> str:
    try:
        return datetime.strptime(time, _TIME).isoformat(timespec="microseconds") + "Z"
    except ValueError:  # somebody else's tag
        return ""


def ours(tag: str) -> bool:
    """Whether trb wrote this tag beside the one that the user named."""
    return bool(_MOVE.fullmatch(tag) or _SIGNATURE.fullmatch(tag))


def signatures(tags: Iterable[str]) -> list[tuple[str, str]]:
    """Digest (``sha256:…``) and key id of each signature."""
    matches = (_SIGNATURE.fullmatch(tag) for tag in tags)
    return [(f"sha256:{match[1]}", match[2]) for match in matches if match]


def signature_tag(digest: str, key: str) -> str:
    """Tag of an image's signature by the key of this id."""
    return f"sha256-{digest.removeprefix('sha256:')}.sig-{key}"


def read_signature(client: Client, digest: str, key: str) -> bytes | None:
    """A stored signature; empty if the artefact of this tag holds none."""
    stored = client.manifest(signature_tag(digest, key))
    if stored is None:
        return None
    try:
        artefact = load_json(stored[1])
        if former := (artefact.get("annotations") or {}).get(FORMER_ANNOTATION):
            return str(former).encode()
        blob = str(artefact["layers"][0]["digest"])
    except DAMAGED:
        return b""
    if not DIGEST.fullmatch(blob) or client.size(blob) is None:
        return b""
    where = signature_tag(digest, key)
    return transfer.within(transfer.PATIENCE, lambda: transfer.document(client.blob(blob), where), where)


def write_signature(client: Client, digest: str, key: str, document: bytes) -> None:
    """Store a signature, unless this one is there."""
    if read_signature(client, digest, key) == document:
        return
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": sigstore_bundle.MEDIA_TYPE,
        "config": {"mediaType": EMPTY_TYPE, **_blob(client, EMPTY)},
        "layers": [
            {
                "mediaType": sigstore_bundle.MEDIA_TYPE,
                **_blob(client, document),
                "annotations": {"org.opencontainers.image.title": FILE},
            }
        ],
    }
    client.put_manifest(signature_tag(digest, key), json.dumps(manifest, indent=1, sort_keys=True).encode())


def _blob(client: Client, content: bytes) -> dict[str, str | int]:
    """Digest and size of a blob, sent if the registry does not have it."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if client.digest(digest, len(content)) != digest:
        client.put_blob(digest, iter([content]), len(content))
    return {"digest": digest, "size": len(content)}
