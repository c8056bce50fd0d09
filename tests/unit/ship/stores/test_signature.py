"""Signatures by OpenSSF model signing: its library accepts them, for one subject and one key."""

from __future__ import annotations

import base64
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_signing import hashing, verifying

from tests.support import keys
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import revision, signature, signing_keys, sigstore_bundle
from triton_repo_builder.ship.stores.signature import Subject
from triton_repo_builder.ship.stores.signing_keys import PublicKey, Signer, Trust
from triton_repo_builder.ship.stores.sigstore_bundle import InvalidBundle

FILES, OTHER = (Subject(revision=f"sha256:{digit * 64}") for digit in "ab")
IMAGE = Subject(revision=FILES.revision, image=OTHER.revision)


def signer(folder: Path, name: str = "key") -> Signer:
    return signing_keys.read_signer(keys.pair(folder, name).private)


def sign(subject: Subject, key: Signer, counter: int = 7) -> bytes:
    return signature.signed(subject, (), key, counter)


def fault(subject: Subject, key: PublicKey, document: bytes) -> str:
    with pytest.raises(InvalidBundle) as caught:
        signature.verify(subject, key, document)
    return str(caught.value)


def statement(document: bytes) -> dict[str, Any]:
    payload = json.loads(document)["dsseEnvelope"]["payload"]
    return dict(json.loads(base64.b64decode(payload)))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with files that model_signing leaves out by default, and links within it."""
    root = tmp_path / "repository"
    (root / "m" / "1").mkdir(parents=True)
    (root / "ensemble" / "1").mkdir(parents=True)
    (root / "m" / "1" / "model.onnx").write_bytes(bytes(3000))
    for name in ("m/config.pbtxt", "ensemble/config.pbtxt", ".gitattributes", ".gitignore", "m/.gitignore"):
        (root / name).write_text(name)
    (root / "ensemble" / "1" / revision.PLACEHOLDER).touch()
    (root / "größe").write_text("not ASCII")
    return root


def test_model_signing_verifies_the_folder_offline(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("network")

    monkeypatch.setattr(socket, "socket", refuse)
    pair = keys.pair(tmp_path, "key")
    local = revision.collect(repository)
    subject = Subject(revision=f"sha256:{local.index.digest}")
    stored = tmp_path / "model.sig"
    entries = local.index.entries
    stored.write_bytes(signature.signed(subject, entries, signing_keys.read_signer(pair.private), 7))

    def verify() -> None:
        config = verifying.Config().use_elliptic_key_verifier(public_key=pair.public)
        # As the command does it.
        config.set_hashing_config(hashing.Config().set_ignored_paths(paths=[stored], ignore_git_paths=True))
        config.verify(repository, stored)

    verify()
    for name in ("m/config.pbtxt", "m/.gitignore"):
        kept = (repository / name).read_bytes()
        (repository / name).write_text("another")
        with pytest.raises(ValueError, match="mismatch"):
            verify()
        (repository / name).write_bytes(kept)
    (repository / "added").touch()
    with pytest.raises(ValueError, match="added"):
        verify()


def test_no_file_is_read_for_a_signature(tmp_path: Path, repository: Path) -> None:
    local = revision.collect(repository)
    for file in repository.rglob("*.*"):
        file.unlink()
    document = signature.signed(FILES, local.index.entries, signer(tmp_path), 7)
    signed = {each["name"]: each["digest"] for each in statement(document)["predicate"]["resources"]}
    outside = {".gitattributes", ".gitignore"}
    assert signed == {each.path: each.sha256 for each in local.index.entries if each.path not in outside}


def test_the_signed_facts_are_as_documented(tmp_path: Path) -> None:
    key = signer(tmp_path)
    document = sign(IMAGE, key, 1764213538123)
    told = statement(document)
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    assert told["predicateType"] == "https://model_signing/signature/v1.0"
    facts = {"revision": IMAGE.revision, "image": IMAGE.image, "counter": "1764213538123"}
    assert told["predicate"]["trb"] == facts
    assert json.loads(document)["mediaType"] == sigstore_bundle.MEDIA_TYPE
    assert (FILES.digest, IMAGE.digest) == ("a" * 64, "b" * 64)
    assert signature.stated_key(document) == key.public.fingerprint


def test_a_signature_holds_for_its_subject_and_its_key_only(tmp_path: Path) -> None:
    key, other = (signer(tmp_path, name) for name in "ab")
    document = sign(FILES, key)
    assert signature.verify(FILES, key.public, document) == 7
    assert signature.counter(FILES, key.public, document) == 7
    assert "something else" in fault(OTHER, key.public, document)
    assert "something else" in fault(IMAGE, key.public, document)
    assert "something else" in fault(FILES, key.public, sign(IMAGE, key))
    assert "not by this key" in fault(FILES, other.public, document)
    assert signature.counter(OTHER, key.public, document) == signature.counter(FILES, key.public, b"") == 0


Alter = Callable[[dict[str, Any], dict[str, Any]], object]
ALTERATIONS: dict[str, Alter] = {
    "payload": lambda good, other: good["dsseEnvelope"].update(payload=other["dsseEnvelope"]["payload"]),
    "second spelling": lambda good, other: good.update(dsse_envelope=other["dsseEnvelope"]),
    "signature": lambda good, other: good["dsseEnvelope"].update(signatures=[{"sig": "AAAA", "keyid": ""}]),
    "of another": lambda good, other: good["dsseEnvelope"].update(
        signatures=other["dsseEnvelope"]["signatures"]
    ),
    "without": lambda good, other: good["dsseEnvelope"].update(signatures=[]),
    "number": lambda good, other: good["dsseEnvelope"].update(payload=7),
    "type": lambda good, other: good["dsseEnvelope"].update(payloadType="text/plain"),
    "media type": lambda good, other: good.update(mediaType="application/json"),
    "no hint": lambda good, other: good["verificationMaterial"]["publicKey"].pop("hint"),
    "no key": lambda good, other: good["verificationMaterial"].pop("publicKey"),
    "no envelope": lambda good, other: good.pop("dsseEnvelope"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_altered_signature_does_not_hold(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = signer(tmp_path)
    good, other = json.loads(sign(FILES, key)), json.loads(sign(OTHER, key, 9))
    ALTERATIONS[name](good, other)
    assert fault(FILES, key.public, json.dumps(good).encode())
    assert capsys.readouterr().out == ""  # --json


def test_damaged_documents_do_not_hold(tmp_path: Path) -> None:
    key = signer(tmp_path)
    whole = sign(FILES, key)
    for document in (b"", b"{}", b"[]", b"\xff", b"null", b"[" * 100_000, whole[:-9]):
        assert fault(FILES, key.public, document)
        assert signature.stated_key(document) == "unreadable"


@pytest.mark.parametrize(
    "facts",
    [
        {"revision": FILES.revision},
        *(
            {"revision": FILES.revision, "counter": number}
            for number in ("0", "-7", "7.0", "07", "9" * 20, "")
        ),
        {"counter": "7"},
    ],
)
def test_facts_of_another_form_do_not_hold(tmp_path: Path, facts: dict[str, str]) -> None:
    key = signer(tmp_path)
    assert fault(FILES, key.public, sigstore_bundle.sign("name", (), facts, key))


def require(key: Signer, stored: dict[str, bytes], *more: Signer) -> PublicKey:
    trust = Trust(keys=tuple(each.public for each in (key, *more)), file="allowed")
    return signature.require(FILES, trust, stored.get, "s3://x", lambda: tuple(stored))


def test_one_allowed_key_is_enough_and_a_fault_is_told_from_an_absence(tmp_path: Path) -> None:
    one, two = (signer(tmp_path, name) for name in "ab")
    # What the first key signed was altered; the second one's holds.
    stored = {one.public.id: sign(OTHER, one), two.public.id: sign(FILES, two)}
    assert require(one, stored, two) == two.public
    del stored[two.public.id]
    said = []
    for each in (stored, {"0" * 32: b"x"}, {}):
        with pytest.raises(TrbError) as caught:
            require(one, each, two)
        assert caught.value.code == Code.BAD_SIGNATURE
        said.append(caught.value.message)
    assert len(set(said)) == 3


def test_a_signature_in_the_former_format_is_told_with_what_to_do(tmp_path: Path) -> None:
    former = {
        "schema": 1,
        "key": "SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk",
        "statement": f'{{"kind":"trb-revision","revision":"{FILES.revision}","schema":1}}',
        "signature": "A" * 86 + "==",
    }
    with pytest.raises(TrbError) as caught:
        require(signer(tmp_path), {"0" * 32: json.dumps(former).encode()})
    assert (caught.value.code, caught.value.where) == (Code.BAD_SIGNATURE, "s3://x")
    assert "former format" in caught.value.message
    assert "push and sign it again" in caught.value.remedy and "--sign" in caught.value.remedy


class Place:
    """A place whose current revision is signed by one key."""

    def __init__(self, subject: Subject, document: bytes | None) -> None:
        self.current, self.document = subject, document

    def subject(self) -> Subject:
        return self.current

    def signature(self, subject: Subject, key: str) -> bytes | None:
        return self.document


def test_the_counter_grows_with_each_revision(tmp_path: Path) -> None:
    key = signer(tmp_path)

    def counter(subject: Subject, place: Place) -> int:
        return signature.verify(subject, key.public, signature.sign(subject, (), place, key))

    first = counter(FILES, Place(IMAGE, None))
    assert first > 1_700_000_000_000
    # The clock of who signed the current one goes before ours, by far.
    ahead = Place(FILES, sign(FILES, key, 2 * first))
    assert counter(IMAGE, ahead) == 2 * first + 1
    assert signature.sign(FILES, (), ahead, key) == ahead.document
    assert counter(IMAGE, Place(FILES, sign(FILES, key, 5))) >= first
    # An altered signature of the current revision is replaced.
    assert counter(FILES, Place(FILES, sign(OTHER, key, 2 * first))) < 2 * first


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = signer(tmp_path)
    document = sign(FILES, key)
    monkeypatch.setitem(sys.modules, "model_signing", None)
    for action in (
        lambda: sign(FILES, key),
        lambda: signature.verify(FILES, key.public, document),
        lambda: stores.push(tmp_path, stores.parse("oci://127.0.0.1:1/m:1"), lambda *facts: None, signer=key),
    ):
        with pytest.raises(TrbError) as caught:
            action()
        assert caught.value.code == Code.CLIENT_MISSING
        assert "[push]" in caught.value.remedy
