"""Signed revisions on moto's S3 server and in a registry: what no allowed key signed is not read."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.integration.test_push_s3 import Stalling, listed, push
from tests.support import keys, oci_registry, s3_server
from tests.support import serve_repository as made
from tests.support.cli import ARGV, kind
from tests.support.keys import Pair
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.deploy import revision
from triton_repo_builder.ship.stores import registry_tags, signing_keys
from triton_repo_builder.ship.stores.location import Image
from triton_repo_builder.ship.stores.oci_client import MANIFEST, Client
from triton_repo_builder.ship.stores.registry import RegistryStore


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.running(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.use(monkeypatch)


@pytest.fixture(scope="module", params=["bucket", *oci_registry.PARAMS])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where names of revisions begin."""
    if request.param == "bucket":
        yield f"s3://{request.getfixturevalue('address')}/{s3_server.BUCKET}/"
        return
    with oci_registry.REGISTRIES[request.param](tmp_path_factory.mktemp("registry")) as address:
        yield f"oci://{address}/team/"


@pytest.fixture
def url(place: str, tmp_path: Path) -> str:
    return place + re.sub("[^a-z0-9]+", "-", tmp_path.name.lower())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return made.whole(tmp_path / "repository")


@pytest.fixture
def ours(tmp_path: Path) -> Pair:
    return keys.pair(tmp_path, "ours")


@pytest.fixture
def other(tmp_path: Path) -> Pair:
    return keys.pair(tmp_path, "other")


def sign(tmp: Path, url: str, repository: Path, pair: Pair) -> dict[str, Any]:
    return push(tmp, url, str(repository), "--sign", str(pair.private))


def pull(tmp: Path, url: str, allowed: Path, name: str = "pulled") -> subprocess.CompletedProcess[str]:
    return made.trb(tmp, "pull", url, str(tmp / name), "--require-signature", str(allowed), "--json")


def refused(tmp: Path, url: str, allowed: Path, code: Code = Code.BAD_SIGNATURE) -> None:
    """It is refused, and nothing was written."""
    before = sorted(tmp.iterdir())
    done = pull(tmp, url, allowed)
    assert kind(done.stderr) == code, done.stderr
    aside = {tmp / "tmp", tmp / "state"}
    assert sorted({*tmp.iterdir()} - aside) == sorted({*before} - aside)


def test_what_an_allowed_key_signed_is_pulled(
    tmp_path: Path, url: str, repository: Path, ours: Pair, other: Pair
) -> None:
    told = push(tmp_path, url, str(repository), "--sign", str(ours.private), "--dry-run")
    pushed = sign(tmp_path, url, repository, ours)
    assert told["signed_by"] == pushed["signed_by"] != ""
    done = pull(tmp_path, url, ours.public)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["signed_by"] == pushed["signed_by"]
    again = pull(tmp_path, url, ours.public)
    assert json.loads(again.stdout)["changed"] is False
    refused(tmp_path, url, other.public)
    # One of several allowed keys is enough.
    both = tmp_path / "both"
    both.write_text(f"# two\n{other.public.read_text()}{ours.public.read_text()}")
    assert pull(tmp_path, url, both, "of-both").returncode == 0
    assert pull(tmp_path, pushed["pinned"], ours.public, "pinned").returncode == 0


def test_what_is_applied_is_opened_only_if_it_is_signed(
    tmp_path: Path, url: str, repository: Path, ours: Pair, other: Pair
) -> None:
    pushed = sign(tmp_path, url, repository, ours)
    with revision.opened(url, weights=True, trust=signing_keys.read_trust(ours.public)) as opened:
        assert opened.digest == pushed["revision"]
        assert (opened.path / "step" / "1" / "model.py").read_text() == made.HEALTHY
    for spec, pair, code in (
        (url, other, Code.BAD_SIGNATURE),
        (str(repository), ours, Code.USAGE),
    ):
        with (
            pytest.raises(TrbError) as caught,
            revision.opened(spec, weights=True, trust=signing_keys.read_trust(pair.public)),
        ):
            pass
        assert caught.value.code == code


def test_several_keys_sign_and_signing_again_changes_nothing(
    tmp_path: Path, url: str, repository: Path, ours: Pair, other: Pair
) -> None:
    first = push(tmp_path, url, str(repository))
    assert listed(tmp_path, url)[0]["signed_by"] == []
    refused(tmp_path, url, ours.public)
    # What lies there is signed without being sent again.
    signed = sign(tmp_path, url, repository, ours)
    assert (signed["revision"], signed["sent"]) == (first["revision"], [])
    before = _state(url)
    sign(tmp_path, url, repository, ours)
    assert _state(url) == before
    second = sign(tmp_path, url, repository, other)
    (stored,) = listed(tmp_path, url)
    assert sorted(stored["signed_by"]) == sorted((signed["signed_by"], second["signed_by"]))
    for pair in (ours, other):
        assert pull(tmp_path, url, pair.public, pair.public.name).returncode in (0, Code.OUTPUT_FOREIGN.exit)


def _state(url: str) -> dict[str, Any]:
    """Everything that is stored at an URL, as far as signatures go."""
    location = stores.parse(url)
    if isinstance(location, Image):
        client = Client(location)
        return {tag: client.manifest(tag) for tag in client.tags()}
    address, _, prefix = url.removeprefix("s3://").partition(f"/{s3_server.BUCKET}/")
    return s3_server.keys(address, f"{prefix}/")


def test_a_revision_after_the_signed_one_needs_its_own_signature(
    tmp_path: Path, url: str, repository: Path, ours: Pair
) -> None:
    signed = sign(tmp_path, url, repository, ours)
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# evil\n")
    push(tmp_path, url, str(repository))
    refused(tmp_path, url, ours.public)
    assert pull(tmp_path, signed["pinned"], ours.public).returncode == 0


Alter = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
"""Makes another signature of the right one, and of one by the same key over another revision."""
ALTERATIONS: dict[str, Alter] = {
    "statement": lambda good, other: _envelope(good, payload=other["dsseEnvelope"]["payload"]),
    "signature": lambda good, other: _envelope(good, signatures=other["dsseEnvelope"]["signatures"]),
    "both": lambda good, other: other,
    "none": lambda good, other: _envelope(good, signatures=[]),
    "empty": lambda good, other: {},
}


def _envelope(bundle: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**bundle, "dsseEnvelope": {**bundle["dsseEnvelope"], **changes}}


def test_an_altered_signature_is_refused_and_repaired_by_signing_again(
    tmp_path: Path, url: str, repository: Path, ours: Pair
) -> None:
    code = repository / "step" / "1" / "model.py"
    code.write_text(made.HEALTHY + "# another\n")
    another = sign(tmp_path, url, repository, ours)
    code.write_text(made.HEALTHY)
    pushed = sign(tmp_path, url, repository, ours)
    good, other = (_signature(found["pinned"]) for found in (pushed, another))
    for alter in ALTERATIONS.values():
        altered = json.dumps(alter(json.loads(good), json.loads(other))).encode()
        _write_signature(pushed["pinned"], altered)
        assert _signature(pushed["pinned"]) == altered != good
        refused(tmp_path, url, ours.public)
    sign(tmp_path, url, repository, ours)
    assert _counter(_signature(pushed["pinned"])) > _counter(good)
    repaired = _signature(pushed["pinned"])
    sign(tmp_path, url, repository, ours)
    assert _signature(pushed["pinned"]) == repaired
    assert pull(tmp_path, url, ours.public).returncode == 0


def _counter(document: bytes) -> int:
    payload = base64.b64decode(json.loads(document)["dsseEnvelope"]["payload"])
    return int(json.loads(payload)["predicate"]["trb"]["counter"])


def _place(pinned: str) -> tuple[Any, Any, str]:
    store = stores.store(stores.parse(pinned))
    subject = store.subject()
    (key,) = store.signers(subject)
    return store, subject, key


def _signature(pinned: str) -> bytes:
    store, subject, key = _place(pinned)
    document = store.signature(subject, key)
    assert document is not None
    return bytes(document)


def _write_signature(pinned: str, document: bytes) -> None:
    store, subject, key = _place(pinned)
    if pinned.startswith("oci:"):
        registry_tags.write_signature(store._client, subject.image, key, document)
    else:
        store._write(f"revisions/{subject.digest}.{key}.sig", document)


def test_altered_files_below_a_signature_that_holds_are_refused(
    tmp_path: Path, address: str, repository: Path, ours: Pair
) -> None:
    url = f"s3://{address}/{s3_server.BUCKET}/altered"
    digest = sign(tmp_path, url, repository, ours)["revision"].removeprefix("sha256:")
    client, keep = s3_server.client(address), s3_server.keys(address, "altered/")

    def put(name: str, data: bytes) -> None:
        client.put_object(Bucket=s3_server.BUCKET, Key=f"altered/{name}", Body=data)

    def restore(name: str) -> None:
        put(name, keep[f"altered/{name}"])

    file = f"revisions/{digest}/step/1/model.py"
    put(file, b"evil = 1\n")
    refused(tmp_path, url, ours.public, Code.DIGEST_MISMATCH)
    restore(file)
    index = f"revisions/{digest}.json"
    put(index, keep[f"altered/{index}"].replace(b"model.py", b"model2py"))
    refused(tmp_path, url, ours.public, Code.DIGEST_MISMATCH)
    restore(index)
    # A revision of the attacker's own: complete, consistent, and current.
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# evil\n")
    forged = push(tmp_path, url, str(repository))["revision"].removeprefix("sha256:")
    refused(tmp_path, url, ours.public)
    for name in [name for name in keep if name.endswith(".sig")]:
        copied = name.removeprefix("altered/").replace(digest, forged)
        put(copied, keep[name])
    refused(tmp_path, url, ours.public)
    restore("current.json")
    assert pull(tmp_path, url, ours.public).returncode == 0


def test_keys_that_are_none_are_refused_before_anything_is_sent_or_read(
    tmp_path: Path, address: str, repository: Path, ours: Pair
) -> None:
    url = f"s3://{address}/{s3_server.BUCKET}/keys"
    former = keys.write(Ed25519PrivateKey.generate(), tmp_path / "former", keys.OPENSSH)
    for file in (former.private, ours.public, tmp_path / "absent"):
        done = made.trb(tmp_path, "push", url, str(repository), "--sign", str(file))
        assert kind(done.stderr) == Code.BAD_KEY, done.stderr
    assert s3_server.keys(address, "keys/") == {}
    sign(tmp_path, url, repository, ours)
    for file in (former.public, ours.private, tmp_path / "absent"):
        refused(tmp_path, url, file, Code.BAD_KEY)


def test_keys_of_openssl_as_documented(tmp_path: Path, address: str, repository: Path) -> None:
    openssl = shutil.which("openssl")
    assert openssl, "apt-get install openssl"
    pair = Pair(private=tmp_path / "release", public=tmp_path / "release.pub")
    for arguments in (
        ("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pair.private),
        ("ec", "-in", pair.private, "-pubout", "-out", pair.public),
    ):
        subprocess.run([openssl, *arguments], check=True)
    url = f"s3://{address}/{s3_server.BUCKET}/openssl"
    pushed = sign(tmp_path, url, repository, pair)
    assert pushed["signed_by"] == f"sha256:{hashlib.sha256(pair.public.read_bytes()).hexdigest()}"
    assert pull(tmp_path, url, pair.public).returncode == 0


def test_model_signing_accepts_the_pulled_folder(
    tmp_path: Path, url: str, repository: Path, ours: Pair, other: Pair
) -> None:
    pushed = sign(tmp_path, url, repository, ours)
    assert pull(tmp_path, url, ours.public).returncode == 0
    stored = tmp_path / "model.sig"
    stored.write_bytes(_signature(pushed["pinned"]))

    def verify(key: Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "model_signing", "verify", "key", str(tmp_path / "pulled")]
        argv += ["--signature", str(stored), "--public_key", str(key)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    done = verify(ours.public)
    assert (done.returncode, done.stdout) == (0, "Verification succeeded\n"), done.stderr
    assert verify(other.public).returncode == 1
    (tmp_path / "pulled" / "step" / "1" / "model.py").write_text("evil = 1\n")
    assert "Hash mismatch for 'step/1/model.py'" in verify(ours.public).stderr


def test_a_revision_signed_in_the_former_format_is_refused_with_what_to_do(
    tmp_path: Path, url: str, repository: Path, ours: Pair
) -> None:
    pushed = push(tmp_path, url, str(repository))
    _write_former(pushed["pinned"])
    refused(tmp_path, url, ours.public)
    told = pull(tmp_path, url, ours.public).stderr
    assert "former format" in told and "push and sign it again" in told
    assert listed(tmp_path, url)[0]["signed_by"] == ["unreadable"]
    sign(tmp_path, url, repository, ours)
    assert pull(tmp_path, url, ours.public).returncode == 0


def _write_former(pinned: str) -> None:
    """Store a signature as trb wrote it before model signing."""
    store, key = stores.store(stores.parse(pinned)), "0" * 32
    subject = store.subject()
    statement = json.dumps({"kind": "trb-revision", "revision": subject.revision, "schema": 1})
    document = json.dumps({"schema": 1, "key": "SHA256:x", "signature": "AA==", "statement": statement})
    if not isinstance(store, RegistryStore):
        store._write(f"revisions/{subject.digest}.{key}.sig", document.encode())  # type: ignore[attr-defined]
        return
    client, empty = store._client, f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    client.put_blob(empty, iter([b"{}"]), 2)
    descriptor = {"mediaType": registry_tags.EMPTY_TYPE, "digest": empty, "size": 2}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": "application/vnd.trb.signature.v1+json",
        "config": descriptor,
        "layers": [descriptor],
        "annotations": {registry_tags.FORMER_ANNOTATION: document},
    }
    client.put_manifest(registry_tags.signature_tag(subject.image, key), json.dumps(manifest).encode())


def test_the_signature_is_there_before_the_revision_is_current(
    tmp_path: Path, address: str, repository: Path, ours: Pair
) -> None:
    url = f"s3://{address}/{s3_server.BUCKET}/gap"
    old = sign(tmp_path, url, repository, ours)
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# newer\n")
    # Copies, a file, the index, the signature; the pointer is held.
    writes = old["files"] + 2
    with Stalling(address, stop_after=writes) as proxy:
        through = url.replace(address, proxy.address)
        argv = [*ARGV, "push", through, str(repository), "--sign", str(ours.private)]
        child = subprocess.Popen(argv, env=made.environment(tmp_path))
        assert proxy.stalled.wait(60)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert pull(tmp_path, url, ours.public).returncode == 0
    assert "newer" not in (tmp_path / "pulled" / "step" / "1" / "model.py").read_text()
    newest = next(stored for stored in listed(tmp_path, url) if stored["revision"] != old["revision"])
    assert newest["signed_by"] == [old["signed_by"]]


def test_a_pointer_that_is_moved_after_the_signature_was_verified_changes_nothing(
    tmp_path: Path, url: str, repository: Path, ours: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = sign(tmp_path, url, repository, ours)
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# evil\n")
    verified = stores.verified

    def moves(*arguments: Any) -> Any:
        found = verified(*arguments)
        push(tmp_path, url, str(repository))
        return found

    monkeypatch.setattr(stores, "verified", moves)
    done = pull(tmp_path, url, ours.public)
    assert json.loads(done.stdout)["revision"] == signed["revision"], done.stderr
    assert (tmp_path / "pulled" / "step" / "1" / "model.py").read_text() == made.HEALTHY


def test_prune_removes_the_signatures_of_what_it_removes(
    tmp_path: Path, url: str, repository: Path, ours: Pair, other: Pair
) -> None:
    for number in range(3):
        (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + f"# {number}\n")
        sign(tmp_path, url, repository, ours)
        pushed = sign(tmp_path, url, repository, other)
    before = _state(url)
    done = made.trb(tmp_path, "push", url, "--prune", "--keep", "1", "--json")
    assert done.returncode == 0, done.stderr
    (removed,) = json.loads(done.stdout)["removed"]
    digest = removed["revision"].removeprefix("sha256:")
    assert any(digest in name for name in before)
    assert not any(digest in name for name in _state(url))
    assert len(listed(tmp_path, url)) == 2
    assert pull(tmp_path, pushed["pinned"], other.public).returncode == 0


# --- the real server


@pytest.mark.server
def test_only_what_was_verified_is_served_and_from_a_folder_of_ours(
    tmp_path: Path, address: str, repository: Path, ours: Pair, other: Pair
) -> None:
    url = f"s3://{address}/{s3_server.BUCKET}/served"
    sign(tmp_path, url, repository, ours)
    refusing = ("serve", url, "--engine=embedded", *made.FREE, "--require-signature", str(other.public))
    assert kind(made.trb(tmp_path, *refusing).stderr) == Code.BAD_SIGNATURE
    assert kind(made.trb(tmp_path, *refusing, "--detach").stderr) == Code.BAD_SIGNATURE
    arguments = ("--engine=embedded", "--json", "--require-signature", str(ours.public))
    with made.serve(tmp_path, url, *arguments) as running:
        assert running.ready()["repository"].startswith(url)
        # The tritonserver does not read the bucket, whose bytes nobody verified.
        assert "--model-repository=s3" not in made.command(running.server)
        digest = listed(tmp_path, url)[0]["revision"].removeprefix("sha256:")
        s3_server.client(address).put_object(
            Bucket=s3_server.BUCKET,
            Key=f"served/revisions/{digest}/step/1/model.py",
            Body=made.HEALTHY.replace("x * 2", "x * 3").encode(),
        )
        stub = next(pid for pid in made.children(running.server) if "/1/model.py" in made.command(pid))
        os.kill(stub, signal.SIGKILL)
        made.until(lambda: "is ready again" in running.err.read_text() or running.process.poll() is not None)
        assert running.infer("whole") == 200
        running.note()
        assert running.end(signal.SIGTERM) == 0


def test_a_folder_cannot_be_asked_for_a_signature(tmp_path: Path, repository: Path, ours: Pair) -> None:
    for more in ((), ("--detach",)):
        done = made.trb(tmp_path, "serve", str(repository), "--require-signature", str(ours.public), *more)
        assert done.returncode == 2, done.stderr
