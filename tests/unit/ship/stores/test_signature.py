"""Keys in all their forms, and signatures that hold or do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support import keys
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import signature
from triton_repo_builder.ship.stores.signature import PublicKey, Subject, Trust

FILES, OTHER = (Subject(revision=f"sha256:{digit * 64}") for digit in "ab")
IMAGE = Subject(revision=FILES.revision, image=OTHER.revision)


def refused(file: Path, read: Callable[[Path], object]) -> TrbError:
    with pytest.raises(TrbError) as caught:
        read(file)
    assert (caught.value.code, caught.value.where) == (Code.BAD_KEY, str(file))
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("form", [keys.OPENSSH, keys.PKCS8])
def test_a_key_signs_and_verifies_the_same_bytes_each_time(tmp_path: Path, form: forms.PrivateFormat) -> None:
    pair = keys.pair(tmp_path, "key", form)
    signer = signature.read_signer(pair.private)
    (key,) = signature.read_trust(pair.public).keys
    assert key == signer.public
    assert signer.sign(FILES) == signer.sign(FILES) != signer.sign(IMAGE)
    assert signature.verify(FILES, key, signer.sign(FILES)) == ""
    assert signature.stated_key(signer.sign(FILES)) == key.fingerprint


def test_the_statement_and_the_fingerprint_are_as_documented(tmp_path: Path) -> None:
    assert FILES.statement == b'{"kind":"trb-revision","revision":"sha256:%s","schema":1}' % (b"a" * 64)
    assert json.loads(IMAGE.statement)["image"] == IMAGE.image
    assert (FILES.digest, IMAGE.digest) == ("a" * 64, "b" * 64)
    key = PublicKey(raw=bytes(32))
    # ssh-keygen -lf of a line with this key.
    assert key.fingerprint == "SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk"
    assert len(key.id) == 32


@pytest.mark.parametrize("form", [keys.PKCS8])
def test_a_passphrase_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: forms.PrivateFormat
) -> None:
    locked = keys.pair(tmp_path, "locked", form, "secret").private
    monkeypatch.delenv(signature.PASSPHRASE, raising=False)
    assert signature.PASSPHRASE in refused(locked, signature.read_signer).remedy
    monkeypatch.setenv(signature.PASSPHRASE, "wrong")
    refused(locked, signature.read_signer)
    monkeypatch.setenv(signature.PASSPHRASE, "secret")
    signature.read_signer(locked)
    signature.read_signer(keys.pair(tmp_path, "open").private)


def test_what_is_no_private_ed25519_key_is_refused(tmp_path: Path) -> None:
    pair = keys.pair(tmp_path, "key")
    refused(pair.public, signature.read_signer)
    refused(tmp_path / "absent", signature.read_signer)
    refused(tmp_path, signature.read_signer)
    for number, key in enumerate(
        (ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048))
    ):
        file = tmp_path / f"other{number}"
        file.touch(0o600)
        file.write_bytes(key.private_bytes(forms.Encoding.PEM, keys.PKCS8, forms.NoEncryption()))
        assert "ed25519" in refused(file, signature.read_signer).message
    whole = pair.private.read_bytes()
    for number, data in enumerate(
        (b"", b"text", whole[:100], whole.replace(b"b3Blb", b"AAAAA"), bytes(2 << 20))
    ):
        file = tmp_path / f"damaged{number}"
        file.touch(0o600)
        file.write_bytes(data)
        refused(file, signature.read_signer)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_private_key_that_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    pair = keys.pair(tmp_path, "key")
    pair.private.chmod(mode)
    assert f"chmod 600 {pair.private}" in refused(pair.private, signature.read_signer).remedy
    pair.public.chmod(mode)  # a public key is for everybody
    signature.read_trust(pair.public)
    pair.private.chmod(0o400)
    signature.read_signer(pair.private)


def test_several_public_keys_in_one_file_in_any_form(tmp_path: Path) -> None:
    one, two, three = (keys.pair(tmp_path, name) for name in "abc")
    file = tmp_path / "allowed"
    file.write_text(
        f"# who may release\n\n{one.line}\nanna@example.com {two.line}\n{keys.pem(three)}{one.line}\n"
    )
    trust = signature.read_trust(file)
    assert len(trust.keys) == 3
    assert set(trust.keys) == {signature.read_signer(pair.private).public for pair in (one, two, three)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "some text\n",
        "ssh-ed25519\n",
        "ssh-ed25519 AAAA\n",
        "ssh-ed25519 !!!!\n",
        "ssh-rsa AAAAB3NzaC1yc2E= x\n",
        "sk-ssh-ed25519@openssh.com AAAA x\n",
        "cert-authority {line}\n",
        "anna valid-before=20200101 {line}\n",
        'from="10.*" {line}\n',
        "{line}\nssh-rsa AAAAB3NzaC1yc2E= x\n",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "{private}",
    ],
)
def test_a_file_of_public_keys_is_read_whole_or_refused(tmp_path: Path, text: str) -> None:
    pair = keys.pair(tmp_path, "key")
    file = tmp_path / "allowed"
    file.write_text(text.format(line=pair.line, private=pair.private.read_text()))
    refused(file, signature.read_trust)


def test_a_signature_holds_for_its_subject_and_its_key_only(tmp_path: Path) -> None:
    signer, other = (signature.read_signer(keys.pair(tmp_path, name).private) for name in "ab")
    good = json.loads(signer.sign(FILES))
    assert signature.verify(OTHER, signer.public, signer.sign(FILES))
    assert signature.verify(FILES, other.public, signer.sign(FILES))
    faults = [
        {**good, "statement": OTHER.statement.decode()},
        {**good, "signature": json.loads(other.sign(FILES))["signature"]},
        {**good, "signature": json.loads(signer.sign(IMAGE))["signature"]},
        {**good, "signature": "AAAA"},
        {**good, "signature": 7},
        {**good, "schema": 2},
        {key: value for key, value in good.items() if key != "signature"},
    ]
    documents = [json.dumps(fault).encode() for fault in faults]
    for document in (*documents, b"", b"{}", b"[]", b"\xff", b"null"):
        assert signature.verify(FILES, signer.public, document), document


def test_one_allowed_key_is_enough_and_a_fault_is_told_from_an_absence(tmp_path: Path) -> None:
    one, two = (signature.read_signer(keys.pair(tmp_path, name).private) for name in "ab")
    trust = Trust(keys=(one.public, two.public), file="allowed")

    def require(stored: dict[str, bytes]) -> PublicKey:
        return signature.require(FILES, trust, stored.get, "s3://x", lambda: tuple(stored))

    # What the first key signed was altered; the second one's holds.
    stored = {one.public.id: one.sign(OTHER), two.public.id: two.sign(FILES)}
    assert require(stored) == two.public
    del stored[two.public.id]
    said = []
    for each in (stored, {"0" * 32: b"x"}, {}):
        with pytest.raises(TrbError) as caught:
            require(each)
        assert caught.value.code == Code.BAD_SIGNATURE
        said.append(caught.value.message)
    assert len(set(said)) == 3


class Place:
    """A place whose current revision is signed by one key."""

    def __init__(self, subject: Subject, document: bytes | None) -> None:
        self.current, self.document = subject, document

    def subject(self) -> Subject:
        return self.current

    def signature(self, subject: Subject, key: str) -> bytes | None:
        return self.document


def test_a_counter_is_signed_and_readable_without_it(tmp_path: Path) -> None:
    signer, other = (signature.read_signer(keys.pair(tmp_path, name).private) for name in "ab")
    document = signer.sign(FILES, 7)
    assert document == signer.sign(FILES, 7)
    assert signature.verify(FILES, signer.public, document) == ""
    stored = json.loads(document)
    # What a trb of before counters reads is what it always was.
    assert {**json.loads(signer.sign(FILES)), "counter": 7} == {
        key: value for key, value in stored.items() if key != "counter_signature"
    }
    assert signature.counter(FILES, signer.public, document) == 7
    for others in (
        {**stored, "counter": 8},
        {**stored, "counter": True},
        {**stored, "counter": -7},
        {**stored, "counter": 7.0},
        {**stored, "counter_signature": stored["signature"]},
        {**stored, "counter": 0, "counter_signature": stored["signature"]},
        {key: value for key, value in stored.items() if key != "counter"},
        [],
    ):
        assert signature.counter(FILES, signer.public, json.dumps(others).encode()) == 0
    assert signature.counter(IMAGE, signer.public, document) == 0
    assert signature.counter(FILES, other.public, document) == 0
    assert signature.counter(FILES, signer.public, b"") == 0


def test_the_counter_grows_with_each_revision(tmp_path: Path) -> None:
    signer = signature.read_signer(keys.pair(tmp_path, "a").private)
    first = signature.next_counter(FILES, Place(IMAGE, None), signer.public)
    assert first > 1_700_000_000_000
    # The clock of who signed the current one goes before ours, by far.
    ahead = Place(FILES, signer.sign(FILES, 2 * first))
    assert signature.next_counter(IMAGE, ahead, signer.public) == 2 * first + 1
    assert signature.next_counter(FILES, ahead, signer.public) == 2 * first
    assert signature.next_counter(IMAGE, Place(FILES, signer.sign(FILES, 5)), signer.public) >= first
