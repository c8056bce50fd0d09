"""URLs of stores, and a folder that is pulled into."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import call, kind
from tests.support.tuned_deployments import GOLDEN
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli.options import Repo
from triton_repo_builder.repository.journal import record
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores.location import Bucket, Image
from triton_repo_builder.ship.stores.revision import collect

DIGEST = "ab" * 32


def ignore(what: str, done: int, total: int) -> None:
    """No progress."""


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_pull_that_was_killed_loses_nothing(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after so many steps: two renames, and the journal goes.

    What is left could be swept, and the next pull brings nothing.
    """

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
        left = itertools.count(steps, -1)
        rename, end = Path.rename, record.end
        monkeypatch.setattr(Path, "rename", lambda *a: rename(*a) if next(left) > 0 else os._exit(9))
        monkeypatch.setattr(record, "end", lambda stage: end(stage) if next(left) > 0 else os._exit(9))
        stores.pull(stores.parse("s3://bucket/path"), target, ignore, force=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if steps == 3 else 9)
    for stage in tmp_path.glob(".repo.trb-*"):
        os.utime(stage, (0, 0))
    monkeypatch.setattr(stores, "store", refuse)
    with pytest.raises(TrbError, match="no network"):
        stores.pull(stores.parse("s3://bucket/path"), target, ignore)
    expected = b"old" if steps < 2 else b"new"
    assert (target / "m" / "1" / "model.onnx").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]


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
def test_reads_urls(text: str, expected: stores.Location) -> None:
    parsed = stores.parse(text)
    assert parsed == expected
    assert stores.parse(str(parsed)) == parsed


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
        stores.parse(text)
    assert (caught.value.code, caught.value.where) == (Code.BAD_LOCATION, text)


def test_paths_stay_paths() -> None:
    assert Repo().convert("a/b", None, None) == Path("a/b")
    assert Repo().convert("s3://models/b", None, None) == stores.parse("s3://models/b")


def test_a_push_names_no_revision(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        stores.push(tmp_path, stores.parse(f"s3://models@sha256:{DIGEST}"), ignore)
    assert caught.value.code == Code.BAD_LOCATION


def test_a_folder_is_no_url(tmp_path: Path) -> None:
    for text in (str(tmp_path), f"oci:{tmp_path}"):
        with pytest.raises(TrbError) as caught:
            stores.parse(text)
        assert caught.value.code == Code.BAD_LOCATION
        assert "docs/deploy-oci.md" in caught.value.remedy


def test_a_dry_run_lists_the_files_even_if_the_store_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store:
        def push(self, *arguments: Any, **named: Any) -> Any:
            raise TrbError(Code.STORAGE_UNREACHABLE, "no network", where="s3://bucket", remedy="wait")

    monkeypatch.setattr(stores, "store", lambda location: Store())
    repository = tmp_path / "model_repository"
    shutil.copytree(GOLDEN, repository)
    (repository / "notes.bin").write_bytes(b"0" * 30_000_000)
    # git ignores libraries that the golden repository names.
    push = ("push", "s3://bucket/path", "--force")
    done = call(*push, "--dry-run", cwd=tmp_path)
    assert kind(done.stderr) is Code.STORAGE_UNREACHABLE
    first, *_, rest, total = done.stdout.splitlines()
    assert first == "30,000,000  notes.bin"
    assert len(done.stdout.splitlines()) == 12 and "smaller files" in rest
    local = collect(repository).index
    assert total == f"{local.bytes:,}  in all, as revision sha256:{local.digest}"
    assert not call(*push, cwd=tmp_path).stdout
    assert (
        json.loads(call(*push, "--dry-run", "--json", cwd=tmp_path).stdout)["code"] == "storage-unreachable"
    )
