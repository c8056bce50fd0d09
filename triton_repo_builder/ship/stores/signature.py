"""Signatures of revisions: subject, order, and the decision whether an allowed key signed.

A signature names the revision by its digest, which covers every file. It is compared with the subject as read
from the store: a stored document never decides what is signed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.ship.stores import sigstore_bundle
from triton_repo_builder.ship.stores.revision import Entry
from triton_repo_builder.ship.stores.signing_keys import PublicKey, Signer, Trust
from triton_repo_builder.ship.stores.sigstore_bundle import InvalidBundle

_COUNTER = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Digests of the revision that is signed."""

    revision: str
    """``sha256:…`` of the index: the files."""
    image: str = ""
    """``sha256:…`` of the manifest, in a registry."""

    @property
    def digest(self) -> str:
        """Hex digest by which the store knows it."""
        return (self.image or self.revision).removeprefix("sha256:")


class Signed(Protocol):
    """A place with a current revision, and signatures of it."""

    def subject(self) -> Subject:
        """The current revision."""

    def signature(self, subject: Subject, key: str) -> bytes | None:
        """The stored signature by the key of this ``id``."""


def sign(subject: Subject, files: Iterable[Entry], place: Signed, signer: Signer) -> bytes:
    """The signature to store: the stored one if the current revision is signed again, else a new one.

    Its counter is milliseconds since 1970, but more than the current revision's. So it grows if several
    people push, and after the pointer was set back.
    """
    last = 0
    with suppress(TrbError):  # nothing is there, or it is damaged
        current = place.subject()
        stored = place.signature(current, signer.public.id) or b""
        last = counter(current, signer.public, stored)
        if last and current == subject:
            return stored
    return signed(subject, files, signer, max(time.time_ns() // 1_000_000, last + 1))


def signed(subject: Subject, files: Iterable[Entry], signer: Signer, counter: int) -> bytes:
    """A new signature; its bytes differ each time."""
    # A string: the format's numbers are floating point.
    facts = {"revision": subject.revision, "image": subject.image, "counter": str(counter)}
    name = f"sha256:{subject.digest}"
    return sigstore_bundle.sign(name, files, {key: fact for key, fact in facts.items() if fact}, signer)


def verify(subject: Subject, key: PublicKey, document: bytes) -> int:
    """The counter that a key signed with this subject. Raises InvalidBundle."""
    facts = sigstore_bundle.verify(document, key)
    if (facts.get("revision"), facts.get("image", "")) != (subject.revision, subject.image):
        raise InvalidBundle("the signature is for something else")
    number = facts.get("counter")
    if not isinstance(number, str) or not _COUNTER.fullmatch(number):
        raise InvalidBundle("the signature has no counter")
    return int(number)


def counter(subject: Subject, key: PublicKey, document: bytes) -> int:
    """The counter that a key signed with this subject; 0 without a valid signature."""
    try:
        return verify(subject, key, document)
    except InvalidBundle:
        return 0


def stated_key(document: bytes) -> str:
    """The fingerprint of the key that a stored signature states; ``unreadable`` without one."""
    hint = sigstore_bundle.hint(document)
    return f"sha256:{hint}" if hint else "unreadable"


def _of_old_format(document: bytes | None) -> bool:
    """Whether trb signed this in the format of its own that it had before model signing."""
    try:
        return isinstance(load_json(document or b"")["statement"], str)
    except DAMAGED:
        return False


def require(
    subject: Subject,
    trust: Trust,
    read: Callable[[str], bytes | None],
    where: str,
    signers: Callable[[], Sequence[str]],
) -> PublicKey:
    """The first allowed key that signed. Raises BAD_SIGNATURE.

    ``read`` gets a stored signature by its key's ``id``; ``signers`` lists the ids of all that are stored,
    for the message.
    """
    faults = []
    for key in trust.keys:
        document = read(key.id)
        if document is None:
            continue
        try:
            verify(subject, key, document)
        except InvalidBundle as fault:
            faults.append(f"{key.fingerprint}: {fault}")
        else:
            return key
    remedy = "let who has an allowed key sign it: trb push URL REPO --sign KEYFILE"
    if faults:
        message = f"has no signature that holds ({'; '.join(faults)})"
        remedy = "do not use it: it may have been tampered with; who has the key can sign it again"
    else:
        others: Sequence[str] = ()
        old = False
        with suppress(TrbError):  # who may read need not be allowed to list
            others = signers()
            old = any(_of_old_format(read(other)) for other in others)
        message = f"is signed, but by no key of {trust.file}" if others else "is not signed"
        if old:
            message = "is signed in trb's former format (ed25519), which is no longer read"
            remedy = "push and sign it again, with a key of docs/push.md: trb push URL REPO --sign KEYFILE"
    raise TrbError(Code.BAD_SIGNATURE, f"sha256:{subject.digest} {message}", where=where, remedy=remedy)
