"""The one door to cryptography: ed25519 signatures of revisions, by keys in the forms of OpenSSH and PEM.

A signature is over a statement, one canonical line of JSON that names the revision by its digest. Whoever
verifies makes the statement anew from what was found: nothing that is stored decides what was signed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from triton_repo_builder.base import private_file
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import DAMAGED, load_json
from triton_repo_builder.base.text import shortened

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KIND = "trb-revision"
"""Part of every statement: a key that signs other things, too, signs nothing that reads like one of ours."""
PASSPHRASE = "TRB_SIGN_PASSPHRASE"
MAKE_KEY = "make a key with: ssh-keygen -t ed25519 -f KEYFILE"
LARGEST = 1 << 20
"""Bytes of a file of keys, or of a stored signature; more is neither."""
_TYPE = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_NAME = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is signed."""

    revision: str
    """``sha256:…`` of the index: the files."""
    image: str = ""
    """``sha256:…`` of the manifest, in a registry."""

    @property
    def statement(self) -> bytes:
        """The bytes that are signed: the same for the same subject."""
        return self.counted(0)

    def counted(self, counter: int) -> bytes:
        """The statement with a counter, which grows from one revision to the next; 0: without one."""
        facts: dict[str, str | int] = {"kind": KIND, "schema": 1, "revision": self.revision}
        if self.image:
            facts["image"] = self.image
        if counter:
            facts["counter"] = counter
        return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """Hex digest by which the store knows it."""
        return (self.image or self.revision).removeprefix("sha256:")


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """An ed25519 key."""

    raw: bytes
    """32 bytes."""

    @property
    def id(self) -> str:
        """The first 32 hex digits of its fingerprint: part of the name of what it signed."""
        return self._hash.hex()[:32]

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -l`` prints it."""
        return f"SHA256:{base64.b64encode(self._hash).decode().rstrip('=')}"

    @property
    def _hash(self) -> bytes:
        return hashlib.sha256(_TYPE + self.raw).digest()


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A private key."""

    public: PublicKey
    _sign: Callable[[bytes], bytes]

    def sign(self, subject: Subject, counter: int = 0) -> bytes:
        """The document to store: the same bytes each time.

        The counter has a signature of its own, so that a trb which knows no counters reads the document, too.
        """
        document: dict[str, Any] = {
            "schema": 1,
            "key": self.public.fingerprint,
            "statement": subject.statement.decode(),
            "signature": self._base64(subject.statement),
        }
        if counter:
            document |= {"counter": counter, "counter_signature": self._base64(subject.counted(counter))}
        return f"{json.dumps(document, indent=1, sort_keys=True)}\n".encode()

    def _base64(self, statement: bytes) -> str:
        return base64.b64encode(self._sign(statement)).decode()


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The public keys that a revision may be signed with; one of them is enough."""

    keys: tuple[PublicKey, ...]
    file: str


def read_signer(file: Path) -> Signer:
    """Read a private key: OpenSSH's format or PEM (PKCS#8). Raises BAD_KEY."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    data, exposure = _read(file)
    if b"PRIVATE KEY-----" not in data:
        public = data.startswith(b"ssh-") or b"BEGIN PUBLIC KEY" in data
        what = "is a public key" if public else "is not a private key in the format of OpenSSH or PEM"
        raise _bad(file, what, f"name the private key, or {MAKE_KEY}")
    if exposure:
        raise private_file.refused(file, exposure, Code.BAD_KEY)
    load: Any = serialization.load_pem_private_key
    if b"BEGIN OPENSSH PRIVATE KEY" in data:
        load = serialization.load_ssh_private_key
    passphrase = os.environ.get(PASSPHRASE) or None
    try:
        key = _load(load, data, passphrase)
    except UnsupportedAlgorithm as error:
        remedy = "pip install bcrypt, or take the passphrase off a copy of it: ssh-keygen -p -f COPY"
        raise _bad(file, f"cannot be decrypted here: {error}", remedy) from None
    except TypeError:
        raise _bad(file, "needs a passphrase", f"put the passphrase into {PASSPHRASE}") from None
    except ValueError as error:
        remedy = f"check {PASSPHRASE}" if passphrase else f"restore it, or {MAKE_KEY}"
        raise _bad(file, f"cannot be read: {shortened(' '.join(str(error).split()), 200)}", remedy) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _bad(file, f"is not an ed25519 key but {type(key).__name__.lstrip('_')}", MAKE_KEY)
    return Signer(public=PublicKey(raw=_raw(key)), _sign=key.sign)


def _load(load: Any, data: bytes, passphrase: str | None) -> Any:
    """A passphrase for a key that has none is no error: the variable may be meant for another key."""
    if passphrase is not None:
        try:
            return load(data, password=passphrase.encode())
        except TypeError:
            pass
    return load(data, password=None)


def _raw(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def read_trust(file: Path) -> Trust:
    """Read allowed public keys: lines as in authorized_keys or allowed_signers, and PEM. Raises BAD_KEY."""
    text = _read(file)[0].decode("utf-8", "replace")
    keys = [_of_pem(file, match) for match in _PEM.finditer(text)]
    for number, line in enumerate(_PEM.sub(_blank, text).splitlines(), 1):
        if (words := line.split()) and not words[0].startswith("#"):
            keys.append(_of_line(file, number, words))
    if not keys:
        raise _bad(file, "holds no public key", "put a line of ssh-keygen's .pub file into it")
    return Trust(keys=tuple(dict.fromkeys(keys)), file=str(file))


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")  # the numbers of the lines after it stay


def _of_pem(file: Path, match: re.Match[str]) -> PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if "PRIVATE" in match[1]:
        raise _bad(file, "is a private key", "name the file of the public key, which ends in .pub")
    try:
        key = serialization.load_pem_public_key(match[0].encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _bad(file, f"has a {match[1]} that cannot be read: {error}", MAKE_KEY) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _bad(file, f"has a key that is not ed25519 but {type(key).__name__.lstrip('_')}", MAKE_KEY)
    return PublicKey(raw=key.public_bytes_raw())


def _of_line(file: Path, number: int, words: list[str]) -> PublicKey:
    """``ssh-ed25519 KEY [COMMENT]``, or the same after a name.

    Options are refused: whoever wrote ``valid-before`` or ``cert-authority`` would rely on what is not done.
    """
    place = next((n for n, word in enumerate(words) if _NAME.fullmatch(word)), None)
    if place is None:
        raise _bad(file, f"line {number} is not a public key", "write: ssh-ed25519 AAAA… COMMENT")
    if words[place] != "ssh-ed25519":
        raise _bad(file, f"line {number} is a key of type {words[place]}, not ssh-ed25519", MAKE_KEY)
    before = words[:place]
    if len(before) > 1 or any("=" in word or '"' in word or word == "cert-authority" for word in before):
        what = f"line {number} has options ({' '.join(before)}), which trb does not follow"
        raise _bad(file, what, "leave them out: NAME ssh-ed25519 AAAA…")
    try:
        blob = base64.b64decode("".join(words[place + 1 : place + 2]), validate=True)
    except (binascii.Error, ValueError):
        blob = b""
    if not blob.startswith(_TYPE) or len(blob) != len(_TYPE) + 32:
        raise _bad(file, f"line {number} is cut off or damaged", "copy the whole line of the .pub file")
    return PublicKey(raw=blob[len(_TYPE) :])


def verify(subject: Subject, key: PublicKey, document: bytes) -> str:
    """Why a stored signature does not hold; empty if it does."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        stored = load_json(document)
        statement, text = stored["statement"], stored["signature"]
        schema = stored["schema"]
        signature = base64.b64decode(text, validate=True)
    except DAMAGED:
        return "the signature cannot be read"
    if schema != 1 or statement != subject.statement.decode():
        return "the signature is for something else"
    try:
        # Over our own statement, not over the stored one.
        Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, subject.statement)
    except (InvalidSignature, ValueError):
        return "the signature is not by this key over this revision"
    return ""


def counter(subject: Subject, key: PublicKey, document: bytes) -> int:
    """The counter that a key signed for this subject; 0 if it signed none, or another one."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        stored = load_json(document)
        number, signature = stored["counter"], base64.b64decode(stored["counter_signature"], validate=True)
        if type(number) is not int or number <= 0:
            return 0
        Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, subject.counted(number))
    except (*DAMAGED, InvalidSignature):
        return 0
    return number


class Signed(Protocol):
    """A place with a current revision, and signatures of it."""

    def subject(self) -> Subject:
        """The current revision."""

    def signature(self, subject: Subject, key: str) -> bytes | None:
        """The stored signature by the key of this ``id``."""


def next_counter(subject: Subject, place: Signed, key: PublicKey) -> int:
    """The counter for what is signed now: milliseconds since 1970, but more than the current revision's.

    So it grows where several people push, and after the pointer was set back. Who signs the current revision
    again gets the same one.
    """
    now = time.time_ns() // 1_000_000
    try:
        current = place.subject()
        last = counter(current, key, place.signature(current, key.id) or b"")
    except TrbError:  # nothing is there, or it is damaged
        return now
    return last if last and current == subject else max(now, last + 1)


def stated_key(document: bytes) -> str:
    """The fingerprint that a stored signature states; ``unreadable`` without one."""
    try:
        return str(load_json(document)["key"])
    except DAMAGED:
        return "unreadable"


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
        fault = verify(subject, key, document)
        if not fault:
            return key
        faults.append(f"{key.fingerprint}: {fault}")
    if faults:
        message = f"has no signature that holds ({'; '.join(faults)})"
        remedy = "do not use it: it may have been tampered with; who has the key can sign it again"
    else:
        try:
            others = bool(signers())
        except TrbError:  # who may read need not be allowed to list
            others = False
        message = f"is signed, but by no key of {trust.file}" if others else "is not signed"
        remedy = "let who has an allowed key sign it: trb push URL REPO --sign KEYFILE"
    raise TrbError(Code.BAD_SIGNATURE, f"sha256:{subject.digest} {message}", where=where, remedy=remedy)


def _read(file: Path) -> tuple[bytes, str]:
    """A file of keys, and how others can get at it, which is no fault of public ones."""
    try:
        data, exposure = private_file.read(file, LARGEST + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _bad(file, f"cannot be read: {reason}", "name a file that you may read") from None
    if len(data) > LARGEST:
        raise _bad(file, "is too large for a file of keys", "name the file of the key")
    return data, exposure


def _bad(file: Path, what: str, remedy: str) -> TrbError:
    return TrbError(Code.BAD_KEY, what, where=str(file), remedy=remedy)
