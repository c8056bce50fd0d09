"""Files of keys: what model signing takes is read, all else is refused with a remedy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from tests.support import keys
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import signing_keys


def refused(file: Path, read: Callable[[Path], object]) -> TrbError:
    with pytest.raises(TrbError) as caught:
        read(file)
    assert (caught.value.code, caught.value.where) == (Code.BAD_KEY, str(file))
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("form", [keys.EC, keys.PKCS8])
@pytest.mark.parametrize(
    "curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda each: each.name
)
def test_both_files_of_a_key_name_the_same_key(
    tmp_path: Path, form: forms.PrivateFormat, curve: ec.EllipticCurve
) -> None:
    pair = keys.write(ec.generate_private_key(curve), tmp_path / "key", form)
    signer = signing_keys.read_signer(pair.private)
    assert signing_keys.read_trust(pair.public).keys == (signer.public,)
    # What sha256sum prints for the file of the public key.
    assert signer.public.fingerprint == f"sha256:{hashlib.sha256(pair.public.read_bytes()).hexdigest()}"
    assert len(signer.public.id) == 32
    assert "PRIVATE" not in repr(signer)


@pytest.mark.parametrize("form", [keys.EC, keys.PKCS8])
def test_a_passphrase_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: forms.PrivateFormat
) -> None:
    locked = keys.pair(tmp_path, "locked", form, "secret").private
    monkeypatch.delenv(signing_keys.PASSPHRASE, raising=False)
    assert signing_keys.PASSPHRASE in refused(locked, signing_keys.read_signer).remedy
    monkeypatch.setenv(signing_keys.PASSPHRASE, "wrong")
    refused(locked, signing_keys.read_signer)
    monkeypatch.setenv(signing_keys.PASSPHRASE, "secret")
    signing_keys.read_signer(locked)
    signing_keys.read_signer(keys.pair(tmp_path, "open").private)


OTHER_TYPES: dict[str, Callable[[], PrivateKeyTypes]] = {
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
}


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_key_of_another_type_is_refused_by_its_name(tmp_path: Path, kind: str) -> None:
    pair = keys.write(OTHER_TYPES[kind](), tmp_path / "key", keys.PKCS8)
    for file, read in ((pair.private, signing_keys.read_signer), (pair.public, signing_keys.read_trust)):
        error = refused(file, read)
        assert kind in error.message and "P-256" in error.message
        assert "openssl ecparam" in error.remedy


def test_a_file_that_is_not_a_private_key_is_refused(tmp_path: Path) -> None:
    pair = keys.pair(tmp_path, "key")
    for file in (
        pair.public,
        tmp_path / "absent",
        tmp_path,
        keys.pair(tmp_path, "ssh", keys.OPENSSH).private,
    ):
        refused(file, signing_keys.read_signer)
    whole = pair.private.read_bytes()
    for number, data in enumerate((b"", b"text", whole[:100], whole.replace(b"MHc", b"AAA"), bytes(2 << 20))):
        file = tmp_path / f"damaged{number}"
        file.touch(0o600)
        file.write_bytes(data)
        refused(file, signing_keys.read_signer)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_private_key_that_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    pair = keys.pair(tmp_path, "key")
    pair.private.chmod(mode)
    assert f"chmod 600 {pair.private}" in refused(pair.private, signing_keys.read_signer).remedy
    pair.public.chmod(mode)  # a public key is for everybody
    signing_keys.read_trust(pair.public)
    pair.private.chmod(0o400)
    signing_keys.read_signer(pair.private)


def test_several_public_keys_in_one_file_with_comments(tmp_path: Path) -> None:
    one, two, three = (keys.pair(tmp_path, name) for name in "abc")
    texts = [pair.public.read_text() for pair in (one, two, three)]
    file = tmp_path / "allowed"
    file.write_text(f"# who may release\n\n{texts[0]}# anna\n{texts[1]}{texts[2].rstrip()}\r\n{texts[0]}")
    trust = signing_keys.read_trust(file)
    assert trust.keys == tuple(signing_keys.read_signer(pair.private).public for pair in (one, two, three))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "some text\n",
        "{public}valid-before=20200101\n",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 release@example.com\n",
        "ecdsa-sha2-nistp256 AAAA\n{public}",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "{private}",
    ],
)
def test_a_file_of_public_keys_is_read_whole_or_refused(tmp_path: Path, text: str) -> None:
    pair = keys.pair(tmp_path, "key")
    file = tmp_path / "allowed"
    file.write_text(text.format(public=pair.public.read_text(), private=pair.private.read_text()))
    refused(file, signing_keys.read_trust)
