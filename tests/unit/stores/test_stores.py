"""Pushing without a network: URLs, what a revision is, layers, and a bucket in memory."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from triton_repo_builder import stores
from triton_repo_builder.cli.options import Repo
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores import (
    bucket,
    failures,
    location,
    oci_layers,
    revision,
)
from triton_repo_builder.stores.bucket import BucketStore
from triton_repo_builder.stores.location import Bucket, Image

DIGEST = "ab" * 32


def ignore(what: str, done: int, total: int) -> None:
    """No progress."""


# --- a folder that is pulled into


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_pull_that_was_killed_loses_nothing(
    renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after so many renames; what is left could be swept, and the next pull brings nothing."""

    class Store:
        def pull(self, new: Path, progress: Any) -> stores.Pulled:
            (new / "m" / "1").mkdir(parents=True)
            (new / "m" / "1" / "model.onnx").write_bytes(b"new")
            return stores.Pulled(location="x", revision="r", target="", files=1, bytes=3)

    def refuse(location: Any) -> Any:
        raise TrbError(Code.UNREACHABLE, "no network", where="x", remedy="wait")

    target = tmp_path / "repo"
    (target / "m" / "1").mkdir(parents=True)
    (target / "m" / "1" / "model.onnx").write_bytes(b"old")
    monkeypatch.setattr(stores, "store", lambda location: Store())
    child = os.fork()
    if child == 0:
        left = itertools.count(renames, -1)
        rename = Path.rename
        monkeypatch.setattr(Path, "rename", lambda *a: rename(*a) if next(left) > 0 else os._exit(9))
        stores.pull(stores.parse("s3://bucket/path"), target, ignore, force=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if renames == 3 else 9)
    for stage in tmp_path.glob(".repo.trb-*"):
        os.utime(stage, (0, 0))
    monkeypatch.setattr(stores, "store", refuse)
    with pytest.raises(TrbError, match="no network"):
        stores.pull(stores.parse("s3://bucket/path"), target, ignore)
    expected = b"old" if renames < 2 else b"new"
    assert (target / "m" / "1" / "model.onnx").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]


# --- URLs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://models", Bucket(scheme="s3", bucket="models")),
        ("s3://models/a/b/", Bucket(scheme="s3", bucket="models", prefix="a/b")),
        (
            "s3://127.0.0.1:9000/models/a",
            Bucket(scheme="s3", bucket="models", prefix="a", endpoint="http://127.0.0.1:9000"),
        ),
        (
            "s3://https://minio.example.com:443/models",
            Bucket(scheme="s3", bucket="models", endpoint="https://minio.example.com:443"),
        ),
        (f"gs://m-1/a@sha256:{DIGEST}", Bucket(scheme="gs", bucket="m-1", prefix="a", revision=DIGEST)),
        ("az://box/a", Bucket(scheme="az", bucket="box", prefix="a")),
        ("oci://host/a/b:1.0", Image(registry="host", repository="a/b", tag="1.0")),
        ("oci://localhost:5000/a", Image(registry="localhost:5000", repository="a", tag="latest")),
        (f"oci://host/a@sha256:{DIGEST}", Image(registry="host", repository="a", revision=DIGEST)),
    ],
)
def test_reads_urls(text: str, expected: location.Location) -> None:
    parsed = location.parse(text)
    assert parsed == expected
    assert location.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "models",
        "http://host/x",
        "s3://",
        "s3:///a",
        "s3://-bucket",
        "s3://models//a",
        "s3://models/../a",
        "s3://models/a b",
        "s3://models/a;rm",
        "gs://host:1/models/a",
        "s3://models@sha256:abc",
        "oci://host",
        "oci://host/A",
        "oci://host/a:",
        "oci://host/a:b c",
        "oci://ho st/a",
    ],
)
def test_refuses_urls_that_cannot_be_right(text: str) -> None:
    with pytest.raises(TrbError) as caught:
        location.parse(text)
    assert (caught.value.code, caught.value.where) == (Code.BAD_LOCATION, text)


def test_paths_stay_paths() -> None:
    assert Repo().convert("a/b", None, None) == Path("a/b")
    assert Repo().convert("s3://models/b", None, None) == location.parse("s3://models/b")


# --- what a revision is


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name, data in {
        "m/config.pbtxt": b'backend: "python"\n',
        "m/1/model.py": b"code",
        "m/1/weights.bin": bytes(3) * oci_layers.LARGE,
        "e/config.pbtxt": b'platform: "ensemble"\n',
        "README.md": b"",
        ".git/HEAD": b"not ours",
        "m/1/__pycache__/model.pyc": b"not ours",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "e" / "1").mkdir()
    return root


def test_a_revision_is_its_files_and_nothing_else(repository: Path) -> None:
    gathered = revision.gather(repository)
    assert [entry.path for entry in gathered.index.entries] == [
        "README.md",
        "e/1/.gitkeep",
        "e/config.pbtxt",
        "m/1/model.py",
        "m/1/weights.bin",
        "m/config.pbtxt",
    ]
    (repository / "m" / "1" / "model.py").chmod(0o700)
    (repository / "e" / "1" / ".gitkeep").touch()
    assert revision.gather(repository).index.digest == gathered.index.digest
    (repository / "m" / "1" / "model.py").write_bytes(b"edoc")
    assert revision.gather(repository).index.digest != gathered.index.digest
    read = revision.read_index(gathered.index.document, gathered.index.digest, "here")
    assert read == gathered.index


def test_a_link_is_followed_and_a_broken_one_is_named(repository: Path, tmp_path: Path) -> None:
    digest = revision.gather(repository).index.digest
    code = repository / "m" / "1" / "model.py"
    code.rename(tmp_path / "elsewhere.py")
    code.symlink_to(tmp_path / "elsewhere.py")
    assert revision.gather(repository).index.digest == digest
    (tmp_path / "elsewhere.py").unlink()
    with pytest.raises(TrbError) as caught:
        revision.gather(repository)
    assert (caught.value.code, caught.value.where) == (Code.REPOSITORY_UNREADABLE, str(code))


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../evil", "a\\..\\evil", ""])
def test_an_index_that_leads_outside_is_refused(path: str) -> None:
    document = json.dumps({"files": {path: {"sha256": "0", "bytes": 0}}}).encode()
    with pytest.raises(TrbError) as caught:
        revision.read_index(document, hashlib.sha256(document).hexdigest(), "s3://x")
    assert caught.value.code == Code.DIGEST_MISMATCH
    assert "outside" in caught.value.message


def test_labels_say_what_was_built_from_what() -> None:
    manifest = {
        "generator": {"name": "triton_repo_builder", "version": "1.2"},
        "endpoints": {
            "bert": {
                "sources": [{"file": "model.onnx", "sha256": "12"}],
                "provenance": {"source_run": "run 7", "labels": {"team": "nlp"}},
            }
        },
        "files": {},
    }
    assert revision.labels(manifest) == {
        "trb.version": "1.2",
        "trb.bert.source.model.onnx": "sha256:12",
        "trb.bert.source_run": "run 7",
        "trb.bert.labels": '{"team": "nlp"}',
    }
    assert revision.labels(None) == {}


# --- layers


def test_layers_hold_every_file_once_and_large_ones_alone(repository: Path) -> None:
    gathered = revision.gather(repository)
    parts = oci_layers.split(gathered)
    names = [[file.path for file in part.files] for part in parts]
    assert ["m/1/weights.bin"] in names
    assert sorted(itertools.chain(*names)) == [entry.path for entry in gathered.index.entries]
    found = {}
    for part in parts:
        data = b"".join(part.blocks())
        assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (part.digest, part.size)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                assert member.name.split("/")[0] == "models"
                if member.isreg():
                    stream = archive.extractfile(member)
                    assert stream is not None
                    found[member.name.removeprefix("models/")] = hashlib.sha256(stream.read()).hexdigest()
    assert found == {entry.path: entry.sha256 for entry in gathered.index.entries}


def test_many_files_and_models_make_few_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_layers, "LARGE", 10)
    for number in range(150):
        folder = tmp_path / f"model{number}" / "1"
        folder.mkdir(parents=True)
        (folder / "large").write_bytes(bytes(10 + number))
        (folder / "small").touch()
    parts = oci_layers.split(revision.gather(tmp_path))
    assert len(parts) == oci_layers.MOST + 1


@pytest.mark.parametrize("step", [-1, 1, 3, 100])
def test_a_stream_can_be_read_in_any_pieces(step: int) -> None:
    reader = oci_layers.Reader(iter([b"abc", b"", b"", b"defg", b""]), 7)
    assert len(reader) == 7
    data = b""
    while piece := reader.read(step):
        data += piece
    assert data == b"abcdefg"


# --- a bucket, by the code path that gs and az share with s3


class Memory(MemoryFileSystem):
    """A file system of this test only, which remembers what was written, in order."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.written: list[str] = []
        self.fail_at = 10**9

    def _count(self, path: str) -> None:
        if len(self.written) >= self.fail_at:
            raise ConnectionResetError("gone")
        self.written.append(path)

    def put_file(self, lpath: str, rpath: str, *args: Any, **kwargs: Any) -> None:
        self._count(rpath)
        super().put_file(lpath, rpath, *args, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._count(path2)
        super().cp_file(path1, path2, **kwargs)

    def pipe_file(self, path: str, value: bytes, *args: Any, **kwargs: Any) -> None:
        self._count(path)
        super().pipe_file(path, value, *args, **kwargs)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.mark.parametrize("scheme", ["gs", "az", "s3"])
def test_a_bucket_gets_the_pointer_last_and_gives_it_all_back(
    scheme: str, memory: Memory, repository: Path, tmp_path: Path
) -> None:
    store = BucketStore(Bucket(scheme=scheme, bucket="models", prefix="a"), memory)
    gathered = revision.gather(repository)
    pushed = store.push(gathered, ignore)
    root = f"models/a/revisions/{gathered.index.digest}"
    assert memory.written[-2:] == [f"{root}.json", "models/a/current.json"]
    models = [path for path in memory.written[:-2] if path.endswith("config.pbtxt")]
    assert memory.written[-2 - len(models) : -2] == models
    assert pushed.pinned == f"{scheme}://models/a@sha256:{gathered.index.digest}"
    target = tmp_path / "target"
    target.mkdir()
    assert store.pull(target, ignore).revision == pushed.revision
    assert revision.gather(target).index == gathered.index
    memory.written.clear()
    assert store.push(gathered, ignore).sent == ()
    assert memory.written == []


@pytest.mark.parametrize("fail_at", range(8))
def test_wherever_a_push_breaks_off_the_old_revision_stays(
    fail_at: int, memory: Memory, repository: Path
) -> None:
    store = BucketStore(Bucket(scheme="gs", bucket="models"), memory)
    old = store.push(revision.gather(repository), ignore)
    (repository / "README.md").write_text("new")
    new = revision.gather(repository)
    memory.written.clear()
    memory.fail_at = fail_at
    with pytest.raises(TrbError) as caught:
        store.push(new, ignore)
    assert caught.value.code == Code.STORAGE_UNREACHABLE
    assert f"sha256:{store.index()[0]}" == old.revision
    memory.fail_at = 10**9
    again = store.push(new, ignore)
    assert len(again.sent) + len(again.copied) == len(new.index.entries) - min(fail_at, 6)
    assert store.index() == (new.index.digest, new.index)


def test_what_did_not_change_does_not_travel_again(memory: Memory, repository: Path) -> None:
    store = BucketStore(Bucket(scheme="gs", bucket="models"), memory)
    old = store.push(revision.gather(repository), ignore)
    (repository / "README.md").write_text("new")
    # What the older revision has, but damaged, must not be copied.
    digest = old.revision.removeprefix("sha256:")
    MemoryFileSystem.pipe_file(memory, f"models/revisions/{digest}/m/1/model.py", b"c0de")
    told = store.push(revision.gather(repository), ignore, dry_run=True)
    pushed = store.push(revision.gather(repository), ignore)
    assert (pushed.sent, pushed.sent_bytes) == (told.sent, 7) == (("README.md", "m/1/model.py"), 7)
    assert "m/1/weights.bin" in pushed.copied == told.copied
    assert store.index()[0] == revision.gather(repository).index.digest


def test_an_interrupted_push_does_not_take_a_wrong_file_of_the_right_size(
    memory: Memory, repository: Path
) -> None:
    store = BucketStore(Bucket(scheme="gs", bucket="models"), memory)
    gathered = revision.gather(repository)
    memory.fail_at = 3
    with pytest.raises(TrbError):
        store.push(gathered, ignore)
    memory.fail_at = 10**9
    root = f"models/revisions/{gathered.index.digest}"
    (first, *_) = memory.written
    size = memory.info(first)["size"]
    MemoryFileSystem.pipe_file(memory, first, b"#" * size)
    MemoryFileSystem.pipe_file(memory, f"{root}.json", b"{}")
    again = store.push(gathered, ignore)
    assert (first.removeprefix(f"{root}/") in again.sent) is (size > 0)
    assert store.index() == (gathered.index.digest, gathered.index)


def changed(repository: Path, text: str) -> revision.Content:
    """A copy with another README.md."""
    copy = repository.with_name(text)
    shutil.copytree(repository, copy)
    (copy / "README.md").write_text(text)
    return revision.gather(copy)


def moved_meanwhile(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, name: str, path: str, other: revision.Content
) -> None:
    """Another push ends while one writes a file of this name."""
    write = getattr(Memory, name)

    def writes(self: Memory, *args: Any, **kwargs: Any) -> None:
        write(self, *args, **kwargs)
        if any(isinstance(arg, str) and arg.endswith(path) for arg in args):
            monkeypatch.setattr(Memory, name, write)
            BucketStore(Bucket(scheme="gs", bucket="models"), self).push(other, ignore)

    monkeypatch.setattr(Memory, name, writes)


def test_the_push_that_ends_last_is_current_and_says_what_it_replaced(
    memory: Memory, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BucketStore(Bucket(scheme="gs", bucket="models"), memory)
    old = revision.gather(repository)
    store.push(old, ignore)
    other = changed(repository, "other")
    (repository / "README.md").write_text("new")
    moved_meanwhile(memory, monkeypatch, "put_file", "README.md", other)
    pushed = store.push(revision.gather(repository), ignore)
    assert f"sha256:{store.index()[0]}" == pushed.revision
    assert pushed.previous == f"sha256:{other.index.digest}"


def test_a_push_that_is_overtaken_does_not_say_that_it_is_current(
    memory: Memory, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BucketStore(Bucket(scheme="gs", bucket="models"), memory)
    other, new = changed(repository, "other"), revision.gather(repository)
    moved_meanwhile(memory, monkeypatch, "pipe_file", "current.json", other)
    with pytest.raises(TrbError) as caught:
        store.push(new, ignore)
    assert caught.value.code == Code.STORAGE_FAILED
    assert f"another push made sha256:{other.index.digest} the current revision" in caught.value.message
    assert store.index()[0] == other.index.digest
    assert store.push(new, ignore).sent == ()
    assert store.index()[0] == new.index.digest


def test_what_arrives_damaged_is_no_success(
    memory: Memory, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Memory.put_file

    def flips(self: Memory, lpath: str, rpath: str, *args: Any, **kwargs: Any) -> None:
        put(self, lpath, rpath, *args, **kwargs)
        if rpath.endswith("model.py"):
            MemoryFileSystem.pipe_file(self, rpath, b"c0de")

    monkeypatch.setattr(Memory, "put_file", flips)
    store = BucketStore(Bucket(scheme="az", bucket="box"), memory)
    with pytest.raises(TrbError) as caught:
        store.push(revision.gather(repository), ignore)
    assert caught.value.code == Code.DIGEST_MISMATCH
    assert caught.value.where.endswith("m/1/model.py")
    assert not any(path.endswith("current.json") for path in memory.written)


def test_a_pointer_of_somebody_else_is_left_alone(memory: Memory, repository: Path) -> None:
    memory.pipe_file("models/current.json", b'{"revision": 7}')
    memory.written.clear()
    with pytest.raises(TrbError) as caught:
        BucketStore(Bucket(scheme="s3", bucket="models"), memory).push(revision.gather(repository), ignore)
    assert caught.value.code == Code.NOT_PUSHED
    assert memory.written == []


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    def missing(*args: Any, **kwargs: Any) -> None:
        raise ImportError("Install gcsfs")

    monkeypatch.setattr(fsspec, "filesystem", missing)
    with pytest.raises(TrbError) as caught:
        bucket.connect(Bucket(scheme="gs", bucket="models"))
    assert caught.value.code == Code.CLIENT_MISSING
    assert "[push]" in caught.value.remedy


class NoCredentialsError(Exception):
    """As botocore calls it."""


class ProfileNotFound(Exception):
    """As botocore calls it."""


class HttpResponseError(Exception):
    """As gcsfs and azure have it: a status."""

    def __init__(self, status: int) -> None:
        super().__init__("said no")
        self.status = status


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileNotFoundError("The specified bucket does not exist"), Code.STORAGE_MISSING),
        (PermissionError("Access Denied"), Code.ACCESS_DENIED),
        (NoCredentialsError("Unable to locate credentials"), Code.ACCESS_DENIED),
        (ProfileNotFound("The config profile (nope) could not be found"), Code.ACCESS_DENIED),
        (HttpResponseError(403), Code.ACCESS_DENIED),
        (HttpResponseError(404), Code.STORAGE_MISSING),
        (HttpResponseError(500), Code.STORAGE_FAILED),
        (TimeoutError("late"), Code.STORAGE_UNREACHABLE),
        (ConnectionResetError("gone"), Code.STORAGE_UNREACHABLE),
        (OSError(28, "No space left on device"), Code.DISK_FULL),
        (OSError("Forbidden: b/models/o"), Code.ACCESS_DENIED),
        (ValueError("Invalid endpoint: junk"), Code.STORAGE_UNREACHABLE),
    ],
)
def test_each_cause_has_its_code(error: Exception, code: Code) -> None:
    with pytest.raises(TrbError) as caught, failures.explained("s3", "s3://models"):
        raise error
    assert (caught.value.code, caught.value.where) == (code, "s3://models")
    assert caught.value.remedy


def test_a_bug_of_ours_is_no_failure_of_the_store() -> None:
    with pytest.raises(KeyError), failures.explained("s3", "s3://models"):
        raise KeyError("x")


def test_a_push_names_no_revision(repository: Path) -> None:
    with pytest.raises(TrbError) as caught:
        stores.push(repository, location.parse(f"s3://models@sha256:{DIGEST}"), ignore)
    assert caught.value.code == Code.BAD_LOCATION


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:9000", "s3://http://127.0.0.1:9000/models/a/revisions/12"),
        ("https://minio", "s3://https://minio:443/models/a/revisions/12"),
        ("https://s3.eu-west-1.amazonaws.com", "s3://models/a/revisions/12"),
    ],
)
def test_triton_is_told_where_the_bucket_is(endpoint: str, url: str) -> None:
    class Meta:
        endpoint_url = endpoint

    class System:
        class s3:
            meta = Meta

        def connect(self) -> None:
            pass

    assert BucketStore(Bucket(scheme="s3", bucket="models", prefix="a"), System()).models_url("12") == url
