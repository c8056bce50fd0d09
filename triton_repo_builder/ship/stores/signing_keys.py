"""Files of signing keys: elliptic curve keys in PEM, as ``model_signing`` takes them."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_repo_builder.base import private_file
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import shortened

PASSPHRASE = "TRB_SIGN_PASSPHRASE"
MAKE_KEY = "make a key with: openssl ecparam -name prime256v1 -genkey -noout -out KEYFILE"
MAKE_PUBLIC = "make the public one with: openssl ec -in KEYFILE -pubout -out KEYFILE.pub"
CURVES = ("secp256r1", "secp384r1", "secp521r1")
LARGEST = 1 << 20
"""Bytes of a file of keys at most."""
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """A key that signatures are verified with."""

    pem: bytes
    """SubjectPublicKeyInfo, as ``openssl ec -pubout`` writes it."""

    @property
    def hint(self) -> str:
        """Hex sha256 of the PEM text, as the signature states it and as ``sha256sum`` prints it."""
        return hashlib.sha256(self.pem).hexdigest()

    @property
    def id(self) -> str:
        """The first 32 hex digits of the hint: part of the name of a stored signature."""
        return self.hint[:32]

    @property
    def fingerprint(self) -> str:
        """``sha256:…``, for people."""
        return f"sha256:{self.hint}"


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A key that signs."""

    public: PublicKey
    pem: bytes = field(repr=False)
    """PKCS#8, without a passphrase; never written anywhere."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The public keys that a revision may be signed with; one of them is enough."""

    keys: tuple[PublicKey, ...]
    file: str


def missing_library(error: ImportError) -> TrbError:
    """The error if the libraries of signatures are not installed."""
    return TrbError(
        Code.CLIENT_MISSING,
        f"signatures need a library that is not installed: {error}",
        remedy="pip install 'triton_repo_builder[push]'",
    )


def read_signer(file: Path) -> Signer:
    """Read a private key. Raises BAD_KEY, CLIENT_MISSING."""
    data, exposure = _read(file)
    if b"PRIVATE KEY-----" not in data:
        raise _bad(file, "is not a private key in PEM", f"name the private key, or {MAKE_KEY}")
    if exposure:
        raise private_file.refused(file, exposure, Code.BAD_KEY)
    if b"BEGIN OPENSSH PRIVATE KEY" in data:
        raise _bad(file, "is a key in OpenSSH's format, not in PEM", MAKE_KEY)
    forms, key = _forms(), _private_key(file, data)
    public = _supported(file, key.public_key())
    pem = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return Signer(public=public, pem=pem)


def _private_key(file: Path, data: bytes) -> Any:
    load, passphrase = _forms().load_pem_private_key, os.environ.get(PASSPHRASE, "")
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        with suppress(TypeError):  # for a key without one: the variable may be meant for another key
            if passphrase:
                return load(data, password=passphrase.encode())
        return load(data, password=None)
    except TypeError:
        raise _bad(file, "needs a passphrase", f"put the passphrase into {PASSPHRASE}") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        remedy = f"check {PASSPHRASE}" if passphrase else f"restore it, or {MAKE_KEY}"
        raise _bad(file, _unreadable(error), remedy) from None


def read_trust(file: Path) -> Trust:
    """Read allowed public keys: PEM, as many as there are, with comments. Raises BAD_KEY, CLIENT_MISSING."""
    text = _read(file)[0].decode("utf-8", "replace")
    keys = [_public_key(file, match) for match in _PEM.finditer(text)]
    # A line that is not understood may be a restriction that its author relies on.
    for number, line in enumerate(_PEM.sub(lambda match: "\n" * match[0].count("\n"), text).splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            remedy = f"keys of ssh-keygen do not work here: {MAKE_KEY}; {MAKE_PUBLIC}"
            raise _bad(file, f"line {number} is not a public key in PEM", remedy)
    if not keys:
        raise _bad(file, "holds no public key", MAKE_PUBLIC)
    return Trust(keys=tuple(dict.fromkeys(keys)), file=str(file))


def _public_key(file: Path, match: re.Match[str]) -> PublicKey:
    if "PRIVATE" in match[1]:
        raise _bad(file, "is a private key", f"name the file of the public key; {MAKE_PUBLIC}")
    load = _forms().load_pem_public_key
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        key = load(match[0].encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _bad(file, f"has a {match[1]} that {_unreadable(error)}", MAKE_KEY) from None
    return _supported(file, key)


def _unreadable(error: Exception) -> str:
    return f"cannot be read: {shortened(' '.join(str(error).split()), 200)}"


def _supported(file: Path, key: Any) -> PublicKey:
    """The key, if model signing takes its type."""
    forms, curve = _forms(), getattr(getattr(key, "curve", None), "name", "")
    if curve not in CURVES:
        kind = curve or type(key).__name__.lstrip("_").removesuffix("PublicKey")
        raise _bad(file, f"is a key of the wrong type ({kind}): use P-256, P-384 or P-521", MAKE_KEY)
    return PublicKey(pem=key.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo))


def _forms() -> Any:
    """The module of cryptography that reads and writes keys."""
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise missing_library(error) from None
    return serialization


def _read(file: Path) -> tuple[bytes, str]:
    """Content of a file of keys, and its exposure to other users, which does not matter for public keys."""
    try:
        data, exposure = private_file.read(file, LARGEST + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _bad(file, f"cannot be read: {reason}", "name a file that you may read") from None
    if len(data) > LARGEST:
        raise _bad(file, "is too large for a file of keys", "name the file of the key")
    return data, exposure


def _bad(file: Path, message: str, remedy: str) -> TrbError:
    return TrbError(Code.BAD_KEY, message, where=str(file), remedy=remedy)
