"""The content digest: one per version, wherever it stands, and another for every other content."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import two_versions

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.produce.write import publish, versions
from triton_repo_builder.repository import Manifest, content, pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.ship.deploy import promote
from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.vcs import trailers


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_versions.make(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def one(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with version 1."""
    folder = tmp_path_factory.mktemp("one") / "model_repository"
    put(models[0], folder, 1)
    return folder


def put(model: Path, output: Path, version: int, *, serve: bool = False, **options: Any) -> None:
    made = tiny.make(model, output, version=version, **options)
    publish.publish(publish.prepare(versions.place(made, output, serve=serve), output))


def manifest(root: Path) -> Manifest:
    read = repository.read_manifest(root)
    assert read is not None
    return read


def recorded(root: Path, version: int) -> str:
    return manifest(root).endpoints["sentiment"].versions[version].content


def from_files(root: Path, version: int) -> str:
    return content.of_version(root, manifest(root), "sentiment", version)


def in_config(root: Path, own: str = "") -> str:
    text = (root / "sentiment" / own / "config.pbtxt").read_text()
    return content.stated(ModelConfig(pbtxt.parse(text)))


def codes(root: Path) -> list[str]:
    return [finding.code for finding in check.check(repository.read(root), releases.default())]


def test_it_is_a_digest_of_a_canonical_list(one: Path) -> None:
    digests = {"b/1/model.py": "22", "a/config.pbtxt": "11"}
    listed = '[{"path":"a/config.pbtxt","sha256":"11"},{"path":"b/1/model.py","sha256":"22"}]'
    assert content.digest(digests) == hashlib.sha256(listed.encode()).hexdigest()


def test_it_stands_in_one_config_in_the_manifest_and_in_the_labels(one: Path) -> None:
    digest = from_files(one, 1)
    assert len(digest) == 64
    assert (recorded(one, 1), in_config(one)) == (digest, digest)
    assert "trb.content" not in (one / "sentiment_model" / "config.pbtxt").read_text()
    assert revision.labels(manifest(one))["trb.sentiment.content"] == f"sha256:{digest}"
    assert ("Content-Sha256", digest) in list(trailers.trailers(manifest(one)))


def test_the_same_input_gives_the_same(models: tuple[Path, Path], one: Path, tmp_path: Path) -> None:
    put(models[0], tmp_path / "again", 1)
    assert recorded(tmp_path / "again", 1) == recorded(one, 1)
    put(models[0], tmp_path / "other", 1, instances=3)
    put(models[1], tmp_path / "changed", 1)
    put(models[0], tmp_path / "named", 1, source_run="run-2")
    digests = {recorded(tmp_path / name, 1) for name in ("again", "other", "changed", "named")}
    assert len(digests) == 4


def test_it_stays_while_a_version_waits_is_served_and_waits_again(
    models: tuple[Path, Path], one: Path, tmp_path: Path
) -> None:
    root = tmp_path / "model_repository"
    shutil.copytree(one, root)
    alone = recorded(root, 1)
    put(models[1], root, 2)
    second = recorded(root, 2)
    assert second != alone
    for served in (1, 2, 1):
        if manifest(root).endpoints["sentiment"].served.version != served:
            move = promote.plan(root, "sentiment", served)
            assert move is not None
            promote.in_repository(move)
        assert [from_files(root, version) for version in (1, 2)] == [alone, second]
        assert [recorded(root, version) for version in (1, 2)] == [alone, second]
        assert [in_config(root, f"{version}/shared") for version in (1, 2)] == [alone, second]
        assert in_config(root) == (alone, second)[served - 1]
        assert codes(root) == []


@pytest.mark.parametrize(
    "path",
    [
        "sentiment_model/1/weights.onnx",
        "sentiment_tokenizer/1/tokenizer.json",
        "sentiment_model/labels.txt",
        "sentiment_model/config.pbtxt",
        "sentiment/config.pbtxt",
    ],
)
def test_every_file_counts_and_check_says_so(one: Path, tmp_path: Path, path: str) -> None:
    root = tmp_path / "model_repository"
    shutil.copytree(one, root)
    with (root / path).open("ab") as file:
        file.write(b"\n# another\n")
    assert from_files(root, 1) != recorded(root, 1)
    assert codes(root) == ["manifest-changed"]


def test_check_compares_all_three(one: Path, tmp_path: Path) -> None:
    root = tmp_path / "model_repository"
    shutil.copytree(one, root)
    file = root / "manifest.json"
    document = json.loads(file.read_text())
    document["endpoints"]["sentiment"]["content"] = "0" * 64
    file.write_text(json.dumps(document))
    assert codes(root) == ["manifest-content"]


def test_a_missing_file_counts_as_recorded(one: Path, tmp_path: Path) -> None:
    root = tmp_path / "model_repository"
    shutil.copytree(one, root)
    (root / "sentiment_model" / "1" / "weights.onnx").unlink()
    assert from_files(root, 1) == recorded(root, 1)
    assert "manifest-content" not in codes(root)


def test_a_repository_of_an_older_trb_has_none_and_goes_on_working(
    models: tuple[Path, Path], one: Path, tmp_path: Path
) -> None:
    root = tmp_path / "model_repository"
    shutil.copytree(one, root)
    config, file = root / "sentiment" / "config.pbtxt", root / "manifest.json"
    text = "".join(line for line in config.open() if "trb.content" not in line)
    config.write_text(text)
    document = json.loads(file.read_text())
    del document["endpoints"]["sentiment"]["content"]
    document["files"]["sentiment/config.pbtxt"] = {
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "bytes": len(text),
    }
    file.write_text(json.dumps(document))
    assert codes(root) == []
    assert not [key for key, _ in trailers.trailers(manifest(root)) if key == "Content-Sha256"]
    assert "trb.sentiment.content" not in revision.labels(manifest(root))
    assert from_files(root, 1) == recorded(one, 1)  # what it would have been
    put(models[1], root, 2, serve=True)
    assert (recorded(root, 1), codes(root)) == ("", [])


def test_a_config_without_parameters_takes_the_digest_at_its_end() -> None:
    sealed = content.sealed(b'name: "m"\n', "ab")
    assert sealed.decode().splitlines()[-1].startswith('parameters { key: "trb.content"')
    assert content.hashed("m/config.pbtxt", sealed, "m", 1) == hashlib.sha256(b'name: "m"\n').hexdigest()
    assert content.sealed(sealed, "ab") == sealed
