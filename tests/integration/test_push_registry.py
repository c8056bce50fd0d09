"""``trb push`` to Debian's docker-registry: what arrived, by skopeo, and what serves from it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from needs import unavailable

from tests.integration.test_push_s3 import Refusing, Stalling, listed, push
from tests.support import serve_repository as made
from tests.support.cli import kind, own
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import record, seal, swap
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import retries
from triton_repo_builder.ship.stores.oci_client import Client


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two small models and a file large enough for a layer of its own."""
    root = tmp_path / "repository"
    made.python(root, "step")
    made.ensemble(root, "whole", "step")
    (root / "whole" / "1" / ".gitkeep").unlink()
    (root / "step" / "1" / "data.bin").write_bytes(bytes(range(256)) * 10_000)
    return root


@pytest.fixture
def skopeo() -> str:
    found = shutil.which("skopeo")
    return found or unavailable("skopeo is not installed (apt-get install skopeo)")


def manifest(url: str) -> tuple[str, dict[str, Any]]:
    """Digest and manifest as the registry itself gives them."""
    address, _, rest = url.removeprefix("oci://").partition("/")
    name, _, tag = rest.partition(":")
    request = urllib.request.Request(
        f"http://{address}/v2/{name}/manifests/{tag}",
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
    )
    with urllib.request.urlopen(request) as answer:
        return answer.headers["Docker-Content-Digest"], json.load(answer)


def test_push_pull_serve(tmp_path: Path, registry: str, repository: Path) -> None:
    url = f"oci://{registry}/team/two:1.0"
    told = push(tmp_path, url, str(repository), "--dry-run")
    first = push(tmp_path, url, str(repository))
    assert told["sent"] == first["sent"]
    digest, document = manifest(url)
    assert first["revision"] == told["revision"] == digest
    assert first["previous"] == ""
    assert max(layer["size"] for layer in document["layers"]) > 2_560_000
    again = push(tmp_path, url, str(repository))
    assert (again["sent"], again["revision"], again["previous"]) == ([], digest, digest)

    # A change of one small file sends its layer, and not the large one.
    code = repository / "step" / "1" / "model.py"
    code.write_text(code.read_text().replace("x * 2", "x * 2.0"))
    second = push(tmp_path, url, str(repository))
    assert second["previous"] == digest != second["revision"]
    assert 0 < second["sent_bytes"] < 100_000
    pulled = made.trb(tmp_path, "pull", url, str(tmp_path / "new"))
    assert pulled.returncode == 0, pulled.stderr
    assert "2.0" in (tmp_path / "new" / "step" / "1" / "model.py").read_text()
    assert made.trb(tmp_path, "pull", first["pinned"], str(tmp_path / "old")).returncode == 0
    assert (tmp_path / "old" / "step" / "1" / "model.py").read_text() == made.HEALTHY
    assert (tmp_path / "old" / "whole" / "1" / ".gitkeep").read_bytes() == b""


def test_a_pull_says_what_it_puts_back_of_one_that_was_killed(
    tmp_path: Path, registry: str, repository: Path
) -> None:
    """Killed between the two renames: the old folder is moved away, the new one is not in its place yet."""
    url = f"oci://{registry}/team/between:1"
    push(tmp_path, url, str(repository))
    target, stage = tmp_path / "here", tmp_path / ".here.trb-1"
    stage.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", own(tmp_path)["XDG_STATE_HOME"])
        seal.mark(stage)
        whole = record.Entry(path=record.WHOLE, before="present", after=("0" * 64,))
        record.begin(stage, record.Journal(kind=record.Kind.SWAP, entries=(whole,)))
    for folder, name in ((stage / record.OLD / swap.NEW, "mine.txt"), (stage / swap.NEW, "theirs.txt")):
        folder.mkdir(parents=True)
        (folder / name).write_text("mine")
    refused = made.trb(tmp_path, "pull", url, str(target))
    assert "had left the repository half replaced" in refused.stderr
    assert (target / "mine.txt").read_text() == "mine"
    assert made.trb(tmp_path, "pull", url, str(target), "--force").returncode == 0
    assert (target / "step" / "1" / "model.py").read_text() == made.HEALTHY


# Of four writes: before the only layer that is new, before the manifest, before the tag.
@pytest.mark.parametrize("arrived", [0, 2, 3])
def test_a_push_that_is_killed_goes_on_and_the_tag_stays_until_it_is_whole(
    tmp_path: Path, registry: str, repository: Path, arrived: int
) -> None:
    url = f"oci://{registry}/team/killed{arrived}:1"
    old = push(tmp_path, url, str(repository))["revision"]
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + f"# newer than {arrived}\n")
    told = push(tmp_path, url, str(repository), "--dry-run")
    with Stalling(registry, stop_after=arrived) as proxy:
        argv = [sys.executable, "-m", "triton_repo_builder", "push", url.replace(registry, proxy.address)]
        child = subprocess.Popen([*argv, str(repository)], env=made.environment(tmp_path))
        assert proxy.stalled.wait(60)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert manifest(url)[0] == old
    meanwhile = tmp_path / "meanwhile"
    assert made.trb(tmp_path, "pull", url, str(meanwhile)).returncode == 0
    assert "newer" not in (meanwhile / "step" / "1" / "model.py").read_text()
    done = push(tmp_path, url, str(repository))
    assert (done["previous"], done["revision"]) == (old, told["revision"])
    assert done["sent"] == told["sent"][arrived:]
    assert manifest(url)[0] == done["revision"]
    assert made.trb(tmp_path, "pull", url, str(tmp_path / "pulled")).returncode == 0
    assert "newer" in (tmp_path / "pulled" / "step" / "1" / "model.py").read_text()


def test_a_push_that_is_overtaken_does_not_say_that_it_is_current(
    tmp_path: Path, registry: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"oci://{registry}/team/overtaken:1"
    other = push(tmp_path, url, str(repository))["revision"]
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# newer\n")
    put = Client.put_manifest

    def tags_then_another_does(self: Client, reference: str, document: bytes) -> None:
        put(self, reference, document)
        if reference == "1":
            found = self.manifest(other)
            assert found is not None
            put(self, reference, found[1])

    with monkeypatch.context() as patch:
        patch.setattr(Client, "put_manifest", tags_then_another_does)
        with pytest.raises(TrbError) as caught:
            stores.push(repository, stores.parse(url), lambda *_: None)
    assert caught.value.code == Code.STORAGE_FAILED
    assert f"another push made {other} the current revision" in caught.value.message
    assert manifest(url)[0] == other
    done = push(tmp_path, url, str(repository))
    assert (done["sent"], done["previous"]) == ([], other)
    assert manifest(url)[0] == done["revision"]


@pytest.mark.server
def test_serve_from_a_registry(tmp_path: Path, registry: str, repository: Path) -> None:
    url = f"oci://{registry}/team/serve:1.0"
    push(tmp_path, url, str(repository))
    with made.serve(tmp_path, url, "--engine=embedded", "--json") as running:
        assert running.ready()["repository"] == url
        assert running.infer("whole") == 200
        assert running.end(signal.SIGTERM) == 0


def test_the_same_files_are_the_same_image_anywhere(tmp_path: Path, registry: str, repository: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy)
    for number, path in enumerate(sorted(copy.rglob("*"), reverse=True)):
        path.chmod(0o700)
        os.utime(path, (number, number))
    one = push(tmp_path, f"oci://{registry}/one:1", str(repository))
    other = push(tmp_path, f"oci://{registry}/other:2", str(copy))
    assert one["revision"] == other["revision"]


@pytest.mark.docker
def test_skopeo_sees_a_whole_image_with_its_labels(
    tmp_path: Path, docker_registry: str, repository: Path, skopeo: str
) -> None:
    url = f"oci://{docker_registry}/inspected:1"
    pushed = push(tmp_path, url, str(repository))
    source = f"docker://{docker_registry}/inspected:1"
    inspect = [skopeo, "inspect", "--tls-verify=false", source]
    seen = json.loads(subprocess.run(inspect, check=True, capture_output=True, text=True).stdout)
    assert seen["Digest"] == pushed["revision"]
    assert seen["Labels"] == pushed["labels"]
    target = tmp_path / "layout"
    copy = [skopeo, "copy", "--src-tls-verify=false", "--preserve-digests", source, f"oci:{target}:1"]
    subprocess.run(copy, check=True, capture_output=True)
    found: dict[str, bytes] = {}
    blobs = target / "blobs" / "sha256"
    for layer in manifest(url)[1]["layers"]:
        data = (blobs / layer["digest"].removeprefix("sha256:")).read_bytes()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
                if member.isreg():
                    stream = archive.extractfile(member)
                    assert stream
                    found[member.name] = stream.read()
    there = {
        f"models/{p.relative_to(repository).as_posix()}": p.read_bytes()
        for p in repository.rglob("*")
        if p.is_file()
    }
    assert found == {**there, "models/whole/1/.gitkeep": b""}

    # A copy that compresses layers is another image, but still the same revision of files.
    again = [skopeo, "copy", "--src-tls-verify=false", "--dest-tls-verify=false"]
    subprocess.run(
        [*again, "--dest-compress-format=gzip", source, f"docker://{docker_registry}/copied:1"],
        check=True,
        capture_output=True,
    )
    address = f"oci://{docker_registry}/copied:1"
    pulled = made.trb(tmp_path, "pull", address, str(tmp_path / "copied"), "--json")
    assert pulled.returncode == 0, pulled.stderr
    assert hashlib.sha256((tmp_path / "copied/step/1/model.py").read_bytes()).digest() == (
        hashlib.sha256((repository / "step/1/model.py").read_bytes()).digest()
    )


def test_failures_each_have_a_message_and_a_code(tmp_path: Path, registry: str, repository: Path) -> None:
    gone = f"oci://127.0.0.1:{made.free_port()}/x:1"
    failed = made.trb(tmp_path, "push", gone, str(repository))
    assert (failed.returncode, "does not answer" in failed.stderr) == (10, True), failed.stderr
    absent = made.trb(tmp_path, "pull", f"oci://{registry}/absent:1", str(tmp_path / "pulled"))
    assert (absent.returncode, "there is no such image" in absent.stderr) == (10, True), absent.stderr
    assert not (tmp_path / "pulled").exists()


@pytest.mark.parametrize(("status", "times"), [(503, 2), (0, 2), (503, 99), (0, 99), (403, 99)])
@pytest.mark.parametrize("path", ["/manifests/", "/blobs/"])
def test_a_read_is_tried_again_after_a_5xx_and_a_dropped_connection(
    tmp_path: Path,
    registry: str,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    status: int,
    times: int,
) -> None:
    monkeypatch.setattr(retries, "PAUSES", (0.01,) * (retries.TRIES - 1))
    url = f"oci://{registry}/team/retried:1"
    push(tmp_path, url, str(repository))
    with Refusing(registry, status=status, times=times, path=path) as proxy:
        pulled = made.trb(tmp_path, "pull", url.replace(registry, proxy.address), str(tmp_path / "pulled"))
    assert (pulled.returncode == 0) is (times == 2), pulled.stderr
    assert (tmp_path / "pulled").exists() is (times == 2)
    assert proxy.refused == (2 if times == 2 else 1 if status == 403 else retries.TRIES)
    assert (f"tried {retries.TRIES} times" in pulled.stderr) is (status != 403 and times > 2), pulled.stderr


def test_revisions_are_listed_and_what_another_tag_names_is_kept(
    tmp_path: Path, registry: str, repository: Path
) -> None:
    url = f"oci://{registry}/team/kept:latest"
    assert made.trb(tmp_path, "push", url, "--list").returncode == Code.NOT_PUSHED.exit
    pushed = []
    for number in range(5):
        (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + f"# {number}\n")
        pushed.append(push(tmp_path, url, str(repository))["revision"])
        if number == 1:
            push(tmp_path, url.replace("latest", "release-1"), str(repository))
    found = listed(tmp_path, url)
    assert [stored["revision"] for stored in found] == pushed[::-1]
    assert [stored["holds"] for stored in found] == [["current"], ["previous"], [], ["tag release-1"], []]
    assert all(stored["labels"]["trb.revision"].startswith("sha256:") for stored in found)
    told = made.trb(tmp_path, "push", url, "--prune", "--keep", "1", "--dry-run", "--json")
    assert len(listed(tmp_path, url)) == 5
    done = made.trb(tmp_path, "push", url, "--prune", "--keep", "1", "--json")
    for report in (told, done):
        assert report.returncode == 0, report.stderr
        removed = [stored["revision"] for stored in json.loads(report.stdout)["removed"]]
        assert removed == [pushed[2], pushed[0]]
    # Its layers are those of the others: they are still there.
    for number, revision in enumerate(pushed):
        at = f"oci://{registry}/team/kept@{revision}"
        pulled = made.trb(tmp_path, "pull", at, str(tmp_path / f"pulled{number}"))
        assert (pulled.returncode == 0) is (number in (1, 3, 4)), pulled.stderr
    # What was removed can be pushed again.
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# 0\n")
    assert push(tmp_path, url, str(repository))["revision"] == pushed[0]
    assert listed(tmp_path, url)[0]["revision"] == pushed[0]


def test_a_registry_that_lets_nobody_delete_says_what_to_do(
    tmp_path: Path, registry: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"oci://{registry}/team/forever:1"
    for number in range(3):
        (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + f"# {number}\n")
        push(tmp_path, url, str(repository))
    once = Client._once

    def refuses(self: Client, method: str, path: str, **more: Any) -> Any:
        # What docker-registry does as it is installed: it has no such method.
        return once(self, "PATCH" if method == "DELETE" else method, path, **more)

    monkeypatch.setattr(Client, "_once", refuses)
    failed = made.trb(tmp_path, "push", url, "--prune", "--keep", "1")
    assert kind(failed.stderr) == Code.STORAGE_FAILED
    assert len(listed(tmp_path, url)) == 3
