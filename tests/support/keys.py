"""Signing keys as users have them: each call makes another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

EC, PKCS8, OPENSSH = (
    forms.PrivateFormat.TraditionalOpenSSL,
    forms.PrivateFormat.PKCS8,
    forms.PrivateFormat.OpenSSH,
)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two files of a key."""

    private: Path
    public: Path


def pair(folder: Path, name: str, form: forms.PrivateFormat = EC, passphrase: str = "") -> Pair:
    """A new key on P-256, as openssl writes it."""
    return write(ec.generate_private_key(ec.SECP256R1()), folder / name, form, passphrase)


def write(key: PrivateKeyTypes, file: Path, form: forms.PrivateFormat, passphrase: str = "") -> Pair:
    """The files of a key of any type, in PEM."""
    lock: forms.KeySerializationEncryption = forms.NoEncryption()
    if passphrase:
        lock = forms.BestAvailableEncryption(passphrase.encode())
    files = Pair(private=file, public=file.with_name(f"{file.name}.pub"))
    files.private.touch(0o600)
    files.private.write_bytes(key.private_bytes(forms.Encoding.PEM, form, lock))
    public = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    files.public.write_bytes(public)
    return files
