"""A deployment: the facts of its repository, and the contradictions that stop every export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import tuned_deployments as deployments
from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.serve.processes import shared_memory
from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets import export, facts


def refusal(tmp_path: Path, text: str = "") -> TrbError:
    with pytest.raises(TrbError) as caught:
        deployments.deployment(tmp_path, text)
    return caught.value


def test_the_facts_of_the_golden_repository(tmp_path: Path) -> None:
    deployment = deployments.deployment(tmp_path)
    repository = tmp_path / "model_repository"
    assert deployment.endpoints == ("sentiment",)
    assert deployment.revision == revision.collect(repository).index.digest
    assert deployment.release is releases.newest()
    assert deployment.image == f"nvcr.io/nvidia/tritonserver:{releases.newest().name}-py3"
    assert deployment.shared_memory == shared_memory.needed(deployment.repository)
    assert deployment.complete and deployment.capacity is None
    assert {each.model for each in deployment.batchers} == {"sentiment_model", "sentiment_tokenizer"}
    assert deployment.labels


def test_another_folder_than_the_files_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployments.folder(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert export.read(Path("../deploy.toml")).endpoints == ("sentiment",)


def test_an_own_image_has_the_release_of_the_embedded_server(tmp_path: Path) -> None:
    deployment = deployments.deployment(tmp_path, '[server]\nimage = "registry.example/bert:1"\n')
    assert (deployment.image, deployment.release) == ("registry.example/bert:1", releases.default())


TAGGED = [
    ("nvcr.io/nvidia/tritonserver:25.01-py3", "25.01"),
    ("123456789012.dkr.ecr.eu-central-1.amazonaws.com/tritonserver:25.01-py3", "25.01"),
    (f"nvcr.io/nvidia/tritonserver:25.01-py3-min@sha256:{'0' * 64}", "25.01"),
    ("trb-tritonserver:24.10-cpu", "24.10"),
    # Neither a tag of NVIDIA's, nor a release that trb knows.
    ("registry.example/bert:25.01", releases.default().name),
    ("nvcr.io/nvidia/tritonserver:99.01-py3", releases.default().name),
]


@pytest.mark.parametrize(("image", "release"), TAGGED)
def test_the_release_is_the_one_of_the_images_tag(tmp_path: Path, image: str, release: str) -> None:
    assert deployments.deployment(tmp_path, f'[server]\nimage = "{image}"\n').release.name == release


def test_a_release_that_the_images_tag_contradicts_is_refused(tmp_path: Path) -> None:
    image = "nvcr.io/nvidia/tritonserver:24.10-py3"
    error = refusal(tmp_path, f'[server]\nimage = "{image}"\nrelease = "25.01"\n')
    assert "'server.release' is 25.01, and the tag of 'server.image' says 24.10" in error.message
    same = deployments.deployment(tmp_path / "same", f'[server]\nimage = "{image}"\nrelease = "24.10"\n')
    assert same.release.name == "24.10"


def test_an_unknown_release_lists_the_known_ones(tmp_path: Path) -> None:
    error = refusal(tmp_path, '[server]\nrelease = "24.99"\n')
    assert "'server.release' '24.99' is not known" in error.message
    assert releases.newest().name in error.remedy


def test_a_repository_that_changed_since(tmp_path: Path) -> None:
    digest = deployments.deployment(tmp_path).revision
    stated = f'[repository]\nrevision = "sha256:{digest}"\n'
    assert deployments.deployment(tmp_path, stated).revision == digest
    (tmp_path / "model_repository" / "sentiment" / "config.pbtxt").open("a").write("# changed\n")
    error = refusal(tmp_path, stated)
    assert error.code is Code.DIGEST_MISMATCH
    assert digest[:12] in error.message and 'revision = "sha256:' in error.remedy


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path, '[repository]\npath = "empty"\n').code is Code.REPOSITORY_UNREADABLE


def test_a_model_that_the_image_cannot_load_names_the_release_that_can(tmp_path: Path) -> None:
    deployments.folder(tmp_path)
    manifest = tmp_path / "model_repository" / "manifest.json"
    document = json.loads(manifest.read_text())
    oldest = next(iter(releases.load().values()))
    entry = document["endpoints"]["sentiment"]
    newest = releases.newest()
    opset = next(each for each in range(40, 0, -1) if newest.loads(entry["ir_version"], each))
    entry["opset"] = opset
    manifest.write_text(json.dumps(document))
    error = refusal(tmp_path, f'[server]\nrelease = "{oldest.name}"\n')
    assert error.code is Code.TOO_NEW
    assert f"opset {opset}" in error.message and "set server.release to" in error.remedy
    entry["opset"] = 99
    manifest.write_text(json.dumps(document))
    assert "older opset" in refusal(tmp_path).remedy


def test_a_missing_key_names_the_command_that_makes_it(tmp_path: Path) -> None:
    deployments.folder(tmp_path)
    error = refusal(tmp_path, '[exposure]\nadmin_key = "other"\n')
    assert error.code is Code.NOT_FOUND
    assert "'exposure.admin_key' of deploy.toml is not there" in error.message
    assert "umask 077" in error.remedy


@pytest.mark.parametrize(
    ("table", "key"), [("exposure", "tls_certificate"), ("exposure", "tls_key"), ("gateway", "keys")]
)
def test_each_secret_must_be_there_and_not_empty(tmp_path: Path, table: str, key: str) -> None:
    (tmp_path / "there").write_text("x")
    stated = {"exposure": {"tls_certificate": "there", "tls_key": "there"}, "gateway": {"keys": "there"}}
    stated[table][key] = "secret"
    text = "".join(
        f"[{name}]\n" + "".join(f'{each} = "{path}"\n' for each, path in keys.items())
        for name, keys in stated.items()
    )
    assert f"'{table}.{key}' of deploy.toml is not there" in refusal(tmp_path, text).message
    (tmp_path / "secret").write_text(" \n")
    assert f"'{table}.{key}' of deploy.toml is empty" in refusal(tmp_path, text).message


def test_an_admin_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    deployments.folder(tmp_path)
    (tmp_path / "admin_key").chmod(0o644)
    error = refusal(tmp_path)
    assert "other users may read" in error.message and "chmod 600" in error.remedy


def test_a_memory_that_shared_memory_alone_fills(tmp_path: Path) -> None:
    error = refusal(tmp_path, '[server]\nmemory = "64MiB"\n')
    assert "'server.memory' is 64 MiB, and /dev/shm" in error.message


def test_a_memory_that_leaves_no_room_for_the_server(tmp_path: Path) -> None:
    given = deployments.deployment(tmp_path)
    least = given.shared_memory + facts.ROOM
    mebi = -(-least // (1 << 20))
    assert (
        deployments.deployment(tmp_path / "enough", f'[server]\nmemory = "{mebi}MiB"\n').spec.server.memory
        >= least
    )
    error = refusal(tmp_path / "less", f'[server]\nmemory = "{mebi - 1}MiB"\n')
    assert (
        f"'server.memory' is {mebi - 1} MiB" in error.message
        and f"{facts.ROOM >> 20} MiB more" in error.message
    )


def test_without_a_batcher_each_request_is_a_batch(tmp_path: Path) -> None:
    deployments.folder(tmp_path)
    config = tmp_path / "model_repository" / "sentiment_model" / "config.pbtxt"
    config.write_text(config.read_text().replace("dynamic_batching { }", ""))
    batcher = next(e for e in deployments.deployment(tmp_path).batchers if e.model == "sentiment_model")
    assert (batcher.max_batch, batcher.delay_us) == (1, 0)
    assert batcher.batch_of_replica == batcher.instances
