"""Keys as users have them: made here, each another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

OPENSSH, PKCS8 = forms.PrivateFormat.OpenSSH, forms.PrivateFormat.PKCS8


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two files of a key."""

    private: Path
    public: Path

    @property
    def line(self) -> str:
        """The public key as ssh-keygen writes it."""
        return self.public.read_text().strip()


def pair(folder: Path, name: str, form: forms.PrivateFormat = OPENSSH, passphrase: str = "") -> Pair:
    """A new ed25519 key; the public one is a line of OpenSSH."""
    key = Ed25519PrivateKey.generate()
    lock: forms.KeySerializationEncryption = forms.NoEncryption()
    if passphrase:
        lock = forms.BestAvailableEncryption(passphrase.encode())
    made = Pair(private=folder / name, public=folder / f"{name}.pub")
    made.private.touch(0o600)
    made.private.write_bytes(key.private_bytes(forms.Encoding.PEM, form, lock))
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    made.public.write_bytes(public + b" release@example.com\n")
    return made


def pem(made: Pair) -> str:
    """The public key as openssl writes it."""
    key = forms.load_ssh_public_key(made.public.read_bytes())
    return key.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo).decode()
