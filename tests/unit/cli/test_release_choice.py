"""``--triton-release auto``, ``--engine`` and ``--image`` of ``trb build``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from cli import call

from triton_repo_builder.base import releases
from triton_repo_builder.run.serve.docker import daemon


@pytest.fixture(autouse=True)
def _no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "configured", lambda: False)


def build(tmp_path: Path, *arguments: str) -> Any:
    model = tmp_path / "net.onnx"
    if not model.exists():
        tiny.tensor_model(model)
    return call("build", "--model", model, "--output", tmp_path / "out", "--no-golden", *arguments)


@pytest.mark.parametrize(
    ("arguments", "name", "source"),
    [
        (("--triton-release", "26.05"), "26.05", "stated"),
        (("--engine", "embedded"), "24.10", "embedded"),
        (("--engine", "embedded", "--triton-release", "auto"), "24.10", "embedded"),
        (("--engine", "docker"), releases.newest().name, "newest"),
        (("--image", "nvcr.io/nvidia/tritonserver:26.06-py3"), "26.06", "image"),
    ],
)
def test_a_build_says_which_release_and_why(
    tmp_path: Path, arguments: tuple[str, ...], name: str, source: str
) -> None:
    done = build(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert f"for Triton {name}: " in done.stdout
    entry = json.loads((tmp_path / "out" / "manifest.json").read_text())["endpoints"]["net"]
    assert (entry["triton_release"], entry["triton_release_from"]) == (name, source)
    document = json.loads(build(tmp_path, *arguments, "--json", "--dry-run").stdout)
    assert (document["triton_release"], document["triton_release_from"]) == (name, source)
    assert f"for Triton {name}: {document['triton_release_why']}" in done.stdout


def test_all_and_trb_toml_follow_it_too(tmp_path: Path) -> None:
    (tmp_path / "models" / "a").mkdir(parents=True)
    tiny.tensor_model(tmp_path / "models" / "a" / "model.onnx")
    (tmp_path / "trb.toml").write_text('[build]\nengine = "docker"\n')
    arguments = ("--config", tmp_path / "trb.toml", "--output", tmp_path / "out", "--no-golden")
    done = call("build", "--all", tmp_path / "models", *arguments)
    assert done.returncode == 0, done.stderr
    entry = json.loads((tmp_path / "out" / "manifest.json").read_text())["endpoints"]["a"]
    assert (entry["triton_release"], entry["triton_release_from"]) == (releases.newest().name, "newest")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("--engine", "docker", "--triton-release", "26.05"), "--engine"),
        (("--image", "x:1", "--triton-release", "26.05"), "--image"),
        (("--image", "x:1", "--engine", "embedded"), "--image"),
        (("--image", "x:1"), "x:1"),
    ],
)
def test_what_contradicts_itself_or_says_nothing_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], where: str
) -> None:
    done = build(tmp_path, *arguments)
    assert (done.returncode, f"error: {where}" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_check_takes_the_release_of_the_manifest(tmp_path: Path) -> None:
    model = tiny.embedder(tmp_path / "bert")
    output = tmp_path / "out"
    done = call("build", "--model", model, "--output", output, "--no-golden", "--triton-release", "26.06")
    assert done.returncode == 0, done.stderr
    assert call("check", output).returncode == 0
    assert call("check", output, "--triton-release", "auto").returncode == 0
    older = call("check", output, "--triton-release", "24.10")
    assert older.returncode == 1 and "[field-too-new]" in older.stdout
