"""A bucket in memory, by the code that s3, gs and az share."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support import keys
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import revision, signature, signing_keys
from triton_repo_builder.ship.stores.az import AzureStore
from triton_repo_builder.ship.stores.bucket import BucketStore
from triton_repo_builder.ship.stores.gs import GoogleStore
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.s3 import S3Store


def ignore(what: str, done: int, total: int) -> None:
    """No progress."""


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


@pytest.mark.parametrize("kind", [GoogleStore, AzureStore, S3Store])
def test_a_bucket_gets_the_pointer_last_and_gives_it_all_back(
    kind: type[BucketStore], memory: Memory, repository: Path, tmp_path: Path
) -> None:
    scheme = kind.SCHEME
    store = kind(Bucket(scheme=scheme, bucket="models", prefix="a"), memory)
    local = revision.collect(repository)
    pushed = store.push(local, ignore)
    root = f"models/a/revisions/{local.index.digest}"
    assert memory.written[-2:] == [f"{root}.json", "models/a/current.json"]
    models = [path for path in memory.written[:-2] if path.endswith("config.pbtxt")]
    assert memory.written[-2 - len(models) : -2] == models
    assert pushed.pinned == f"{scheme}://models/a@sha256:{local.index.digest}"
    target = tmp_path / "target"
    target.mkdir()
    assert store.pull(target, ignore).revision == pushed.revision
    assert revision.collect(target).index == local.index
    memory.written.clear()
    assert store.push(local, ignore).sent == ()
    assert memory.written == []


@pytest.mark.parametrize("fail_at", range(8))
def test_wherever_a_push_breaks_off_the_old_revision_stays(
    fail_at: int, memory: Memory, repository: Path
) -> None:
    store = GoogleStore(Bucket(scheme="gs", bucket="models"), memory)
    old = store.push(revision.collect(repository), ignore)
    (repository / "README.md").write_text("new")
    new = revision.collect(repository)
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
    store = GoogleStore(Bucket(scheme="gs", bucket="models"), memory)
    old = store.push(revision.collect(repository), ignore)
    (repository / "README.md").write_text("new")
    # What the older revision has, but damaged, must not be copied.
    digest = old.revision.removeprefix("sha256:")
    MemoryFileSystem.pipe_file(memory, f"models/revisions/{digest}/m/1/model.py", b"c0de")
    told = store.push(revision.collect(repository), ignore, dry_run=True)
    pushed = store.push(revision.collect(repository), ignore)
    assert (pushed.sent, pushed.sent_bytes) == (told.sent, 7) == (("README.md", "m/1/model.py"), 7)
    assert "m/1/weights.bin" in pushed.copied == told.copied
    assert store.index()[0] == revision.collect(repository).index.digest


def test_an_interrupted_push_does_not_take_a_wrong_file_of_the_right_size(
    memory: Memory, repository: Path
) -> None:
    store = GoogleStore(Bucket(scheme="gs", bucket="models"), memory)
    local = revision.collect(repository)
    memory.fail_at = 3
    with pytest.raises(TrbError):
        store.push(local, ignore)
    memory.fail_at = 10**9
    root = f"models/revisions/{local.index.digest}"
    (first, *_) = memory.written
    size = memory.info(first)["size"]
    MemoryFileSystem.pipe_file(memory, first, b"#" * size)
    MemoryFileSystem.pipe_file(memory, f"{root}.json", b"{}")
    again = store.push(local, ignore)
    assert (first.removeprefix(f"{root}/") in again.sent) is (size > 0)
    assert store.index() == (local.index.digest, local.index)


def changed(repository: Path, text: str) -> revision.LocalRevision:
    """A copy with another README.md."""
    copy = repository.with_name(text)
    shutil.copytree(repository, copy)
    (copy / "README.md").write_text(text)
    return revision.collect(copy)


def moved_meanwhile(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, name: str, path: str, other: revision.LocalRevision
) -> None:
    """Another push ends while one writes a file of this name."""
    write = getattr(Memory, name)

    def writes(self: Memory, *args: Any, **kwargs: Any) -> None:
        write(self, *args, **kwargs)
        if any(isinstance(arg, str) and arg.endswith(path) for arg in args):
            monkeypatch.setattr(Memory, name, write)
            GoogleStore(Bucket(scheme="gs", bucket="models"), self).push(other, ignore)

    monkeypatch.setattr(Memory, name, writes)


def test_the_push_that_ends_last_is_current_and_says_what_it_replaced(
    memory: Memory, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = GoogleStore(Bucket(scheme="gs", bucket="models"), memory)
    old = revision.collect(repository)
    store.push(old, ignore)
    other = changed(repository, "other")
    (repository / "README.md").write_text("new")
    moved_meanwhile(memory, monkeypatch, "put_file", "README.md", other)
    pushed = store.push(revision.collect(repository), ignore)
    assert f"sha256:{store.index()[0]}" == pushed.revision
    assert pushed.previous == f"sha256:{other.index.digest}"


def test_a_push_that_is_overtaken_does_not_say_that_it_is_current(
    memory: Memory, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = GoogleStore(Bucket(scheme="gs", bucket="models"), memory)
    other, new = changed(repository, "other"), revision.collect(repository)
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
    store = AzureStore(Bucket(scheme="az", bucket="box"), memory)
    with pytest.raises(TrbError) as caught:
        store.push(revision.collect(repository), ignore)
    assert caught.value.code == Code.DIGEST_MISMATCH
    assert caught.value.where.endswith("m/1/model.py")
    assert not any(path.endswith("current.json") for path in memory.written)


def test_a_pointer_of_somebody_else_is_left_alone(memory: Memory, repository: Path) -> None:
    memory.pipe_file("models/current.json", b'{"revision": 7}')
    memory.written.clear()
    with pytest.raises(TrbError) as caught:
        S3Store(Bucket(scheme="s3", bucket="models"), memory).push(revision.collect(repository), ignore)
    assert caught.value.code == Code.NOT_PUSHED
    assert memory.written == []


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    def missing(scheme: str) -> None:
        raise ImportError("Install gcsfs")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(TrbError) as caught:
        _ = GoogleStore(Bucket(scheme="gs", bucket="models")).system
    assert (caught.value.code, caught.value.where) == (Code.CLIENT_MISSING, "gs://models")
    assert "[push]" in caught.value.remedy


def test_what_is_signed_later_has_a_higher_counter(memory: Memory, repository: Path, tmp_path: Path) -> None:
    pair = keys.pair(tmp_path, "key")
    signer, trust = signing_keys.read_signer(pair.private), signing_keys.read_trust(pair.public)
    store = S3Store(Bucket(scheme="s3", bucket="models", prefix="doc"), memory)

    def push(text: str) -> int:
        (repository / "README.md").write_text(text)
        store.push(revision.collect(repository), ignore, signer=signer)
        subject = store.subject()
        return signature.counter(subject, trust.keys[0], store.signature(subject, signer.public.id) or b"")

    first, second, again, back = (push(text) for text in ("one", "two", "two", "one"))
    assert 0 < first < second == again < back
