"""Signed revisions on moto's S3 server and in a registry: what no allowed key signed is not read."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_push_s3 import Stalling, listed, push
from tests.support import keys, oci_registry, s3_server
from tests.support import serve_repository as made
from tests.support.cli import ARGV, kind
from tests.support.keys import Pair
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.deploy import revision
from triton_repo_builder.ship.stores import registry_tags, signature
from triton_repo_builder.ship.stores.location import Image
from triton_repo_builder.ship.stores.oci_client import Client


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
    both.write_text(f"{other.line}\n{keys.pem(ours)}")
    assert pull(tmp_path, url, both, "of-both").returncode == 0
    assert pull(tmp_path, pushed["pinned"], ours.public, "pinned").returncode == 0


def test_what_is_applied_is_opened_only_if_it_is_signed(
    tmp_path: Path, url: str, repository: Path, ours: Pair, other: Pair
) -> None:
    pushed = sign(tmp_path, url, repository, ours)
    with revision.opened(url, weights=True, trust=signature.read_trust(ours.public)) as opened:
        assert opened.digest == pushed["revision"]
        assert (opened.path / "step" / "1" / "model.py").read_text() == made.HEALTHY
    for spec, pair, code in (
        (url, other, Code.BAD_SIGNATURE),
        (str(repository), ours, Code.USAGE),
    ):
        with (
            pytest.raises(TrbError) as caught,
            revision.opened(spec, weights=True, trust=signature.read_trust(pair.public)),
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
    "signature": lambda good, other: {**good, "signature": f"{'A' * 86}=="},
    "statement": lambda good, other: {**good, "statement": other["statement"]},
    "both": lambda good, other: other,
    "signature of another": lambda good, other: {**good, "signature": other["signature"]},
    "schema": lambda good, other: {**good, "schema": 2},
    "empty": lambda good, other: {},
}


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
    before, after = json.loads(good), json.loads(_signature(pushed["pinned"]))
    assert after.pop("counter") > before.pop("counter")  # the one that was altered had none
    assert after.pop("counter_signature") != before.pop("counter_signature")
    assert after == before
    sign(tmp_path, url, repository, ours)
    assert json.loads(_signature(pushed["pinned"])).items() > after.items()
    assert pull(tmp_path, url, ours.public).returncode == 0


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
    ssh_keygen = shutil.which("ssh-keygen")
    assert ssh_keygen, "apt-get install openssh-client"
    ecdsa = tmp_path / "ecdsa"
    argv = [ssh_keygen, "-q", "-t", "ecdsa", "-N", "", "-f", str(ecdsa)]
    subprocess.run(argv, check=True)
    for file in (ecdsa, ours.public, tmp_path / "absent"):
        done = made.trb(tmp_path, "push", url, str(repository), "--sign", str(file))
        assert kind(done.stderr) == Code.BAD_KEY, done.stderr
    assert s3_server.keys(address, "keys/") == {}
    sign(tmp_path, url, repository, ours)
    for file in (ecdsa.with_name("ecdsa.pub"), ours.private, tmp_path / "absent"):
        refused(tmp_path, url, file, Code.BAD_KEY)


def test_keys_of_ssh_keygen_and_its_fingerprint(tmp_path: Path, address: str, repository: Path) -> None:
    ssh_keygen = shutil.which("ssh-keygen")
    assert ssh_keygen, "apt-get install openssh-client"
    pair = Pair(private=tmp_path / "made", public=tmp_path / "made.pub")
    subprocess.run([ssh_keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(pair.private)], check=True)
    printed = subprocess.run(
        [ssh_keygen, "-l", "-f", str(pair.public)], check=True, capture_output=True, text=True
    ).stdout
    pushed = sign(tmp_path, f"s3://{address}/{s3_server.BUCKET}/keygen", repository, pair)
    assert pushed["signed_by"] == printed.split()[1]


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
