"""``trb inspect REPO``: the endpoints of a repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from cli import call

from triton_repo_builder import repository
from triton_repo_builder.repository import contents


@pytest.fixture
def built(tmp_path: Path) -> Path:
    tiny.tensor_model(tmp_path / "net.onnx")
    done = call("build", "--model", "net.onnx", "--no-golden", "--triton-release", "24.10", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_a_repository_of_trb_and_a_model_of_somebody_else(built: Path) -> None:
    other = built / "model_repository" / "mine"
    (other / "1").mkdir(parents=True)
    (other / "config.pbtxt").write_text('backend: "python"\n')
    document = json.loads(call("inspect", "model_repository", "--json", cwd=built).stdout)
    mine, net = document["endpoints"]
    assert (mine["name"], mine["task"], mine["versions"], mine["inputs"]) == ("mine", None, [1], [])
    assert (net["name"], net["task"], net["served"], net["versions"]) == ("net", "tensor", [1], [1])
    assert (net["triton_release"], net["models"]) == ("24.10", ["net"])
    assert [each["name"] for each in net["inputs"]] == ["X"]
    shown = call("inspect", "model_repository", cwd=built)
    assert shown.returncode == 0
    assert "not built by trb" in shown.stdout and "24.10" in shown.stdout and "X FP32" in shown.stdout


def test_a_repository_without_a_manifest(built: Path) -> None:
    (built / "model_repository" / "manifest.json").unlink()
    (entry,) = contents.entries(repository.read(built / "model_repository"))
    assert (entry.endpoint.name, entry.versions, entry.task) == ("net", (1,), "")
    assert [each.name for each in entry.endpoint.inputs] == ["X"]


def test_a_folder_with_a_model_is_no_repository(built: Path) -> None:
    assert not contents.is_repository(built)
    assert contents.is_repository(built / "model_repository")
    refused = call("inspect", "model_repository", "--file", "a.onnx", cwd=built)
    assert refused.returncode == 2 and "is a model repository" in refused.stderr
