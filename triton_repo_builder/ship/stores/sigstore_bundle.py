"""The one door to model_signing: a Sigstore bundle over a list of files, signed with a plain key, offline.

``model_signing verify key FOLDER --signature BUNDLE --public_key KEY`` accepts it. Its predicate has
one field beside the format's own two, for the facts of a revision: verifiers ignore unknown fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.ship.stores.revision import Entry
from triton_repo_builder.ship.stores.signing_keys import PublicKey, Signer, missing_library

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
FIELD = "trb"
"""The field of the predicate with the facts of a revision."""
UNSIGNED = (".git", ".github", ".gitattributes", ".gitignore")
"""Names at the top that ``model_signing verify`` leaves out unless told otherwise."""


class InvalidBundle(ValueError):
    """A bundle that does not hold, with the reason."""


@dataclass(frozen=True)
class _InMemory:
    """The contents of a key, in the place of its path: model_signing only calls ``read_bytes``."""

    data: bytes

    def read_bytes(self) -> bytes:
        return self.data


def require_library() -> None:
    """Raise CLIENT_MISSING if model_signing, or a library that it needs, is not installed."""
    try:
        import model_signing  # noqa: F401
    except ImportError as error:
        raise missing_library(error) from None


def sign(name: str, files: Iterable[Entry], facts: Mapping[str, str], signer: Signer) -> bytes:
    """Sign recorded digests: no file is read. Raises CLIENT_MISSING."""
    require_library()
    from model_signing import manifest
    from model_signing._signing import sign_ec_key, signing

    # The public API hashes folders, and has no place for further fields.
    method = {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": False,
        "ignore_paths": list(UNSIGNED),
    }
    items = [
        manifest.FileManifestItem(
            path=PurePosixPath(file.path),
            digest=manifest.hashing.Digest("sha256", bytes.fromhex(file.sha256)),
        )
        for file in files
        if file.path.split("/")[0] not in UNSIGNED
    ]
    payload = signing.Payload(manifest.Manifest(name, items, manifest.SerializationType.from_args(method)))
    payload.statement.pb.predicate.update({FIELD: dict(facts)})
    bundle = sign_ec_key.Signer(_InMemory(signer.pem)).sign(payload).bundle
    return str(bundle.to_json()).encode()


def verify(document: bytes, key: PublicKey) -> dict[str, Any]:
    """The facts that a key signed. Raises InvalidBundle, CLIENT_MISSING."""
    if hint(document) != key.hint:  # model_signing would print a warning if there is none
        raise InvalidBundle("the signature is not by this key")
    require_library()
    from cryptography.exceptions import InvalidSignature
    from model_signing._signing import sign_ec_key, sign_sigstore_pb
    from sigstore_models.bundle.v1 import Bundle

    try:
        bundle = Bundle.from_dict(load_json(document))
        sign_ec_key.Verifier(_InMemory(key.pem)).verify(sign_sigstore_pb.Signature(bundle))
        # Read from the object that was verified: a second reading of the document might differ.
        facts = json.loads(bundle.dsse_envelope.payload)["predicate"][FIELD]
        return dict(facts)
    except InvalidSignature:
        raise InvalidBundle("the signature is not by this key over this revision") from None
    except DAMAGED:
        raise InvalidBundle("the signature cannot be read, or is not over a revision of trb") from None


def hint(document: bytes) -> str:
    """Hex sha256 of the public key that a bundle states; empty without one."""
    try:
        return str(load_json(document)["verificationMaterial"]["publicKey"]["hint"])
    except DAMAGED:
        return ""
