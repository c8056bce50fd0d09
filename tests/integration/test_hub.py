"""``--model ORG/NAME``: the real huggingface_hub, a hub on loopback, and a real model's answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from jsonschema import Draft202012Validator

from tests.support import hub as support
from tests.support.cli import ARGV, FEW, kind, trb
from tests.support.zoo import Zoo
from triton_repo_builder.base.errors import Code

ROOT = Path(__file__).resolve().parents[2]
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
NAME = "all-MiniLM-L6-v2"
TINY = "tiny/minilm"
ORIGIN = re.compile(r'^parameters \{ key: "trb\.(hub|hub_file|license|content)" .*\n', re.MULTILINE)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, minilm_int8: Path, exported: Path) -> Iterator[support.Hub]:
    """all-MiniLM-L6-v2 and a model of its kind as authors have them: with optimum's export in ``onnx/``."""
    folder = tmp_path_factory.mktemp("hub")
    model = folder / MODEL
    shutil.copytree(minilm_int8, model)
    _export(model)
    shutil.copytree(exported / "minilm_fp32", folder / TINY)
    _export(folder / TINY)
    (model / "onnx" / "model_O4.onnx").write_bytes(b"another export")
    (model / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n")
    (model / "modeling.py").write_text("raise SystemExit('the code of a model was run')\n")
    (model / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "tiny" / "weights").mkdir()
    (folder / "tiny" / "weights" / "model.safetensors").write_bytes(b"weights")
    with support.running(folder) as running:
        yield running


def _export(model: Path) -> None:
    """Move the ONNX file to ``onnx/``, which is a folder with its own config.json."""
    (model / "onnx").mkdir()
    (model / "model.onnx").rename(model / "onnx" / "model.onnx")
    for file in model.glob("*.json"):
        if file.name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(file, model / "onnx" / file.name)


def run(
    hub: support.Hub, tmp_path: Path, *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: the library reads its settings as it is imported."""
    return subprocess.run(
        [*ARGV, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **hub.environment(tmp_path / "hf", **environment)},
        cwd=tmp_path,
        timeout=240,
        check=False,
    )


@pytest.mark.server
def test_a_name_becomes_an_endpoint_that_answers_as_the_model_does(
    hub: support.Hub, tmp_path: Path, zoo: Zoo
) -> None:
    repository = tmp_path / "model_repository"
    done = run(hub, tmp_path, "build", "--model", MODEL)
    assert done.returncode == 0, done.stderr
    assert "onnx/model_O4.onnx" in done.stderr
    entry = json.loads((repository / "manifest.json").read_text())["endpoints"][NAME]
    assert (entry["task"], entry["facts"]["pooling"]) == ("embedding", "mean")  # modules.json is above onnx/
    with zoo.serving(repository) as server:
        urls = ("--url", server.urls.http, "--grpc-url", server.urls.grpc)
        report = json.loads(trb("smoke", repository, *urls, *FEW, "--json"))
    assert (report["ok"], report["parity_proven"]) == (True, True)

    sent = {path.removeprefix(f"{MODEL}/") for path in hub.fetched}
    assert not any(path.endswith((".py", ".bin", "O4.onnx")) for path in sent)
    origin = entry["provenance"]["hub"]
    digests = origin["files"]
    assert sent <= set(digests)
    # Of files with the same content one is fetched.
    assert {digests[file] for file in sent} == set(digests.values())
    assert (origin["model"], origin["commit"], origin["license"]) == (MODEL, hub.commit(MODEL), "apache-2.0")
    assert origin["files"]["onnx/model.onnx"] == entry["sources"][0]["sha256"]
    schema = json.loads((ROOT / "docs" / "schema" / "manifest.schema.json").read_text())
    Draft202012Validator(schema).validate(json.loads((repository / "manifest.json").read_text()))
    (link,) = json.loads(trb("provenance", repository, "--json"))
    assert (link["hub"], link["license"]) == (f"{MODEL}@{hub.commit(MODEL)}", "apache-2.0")
    (model, *_) = json.loads(trb("provenance", repository, "--sbom"))["components"]
    assert model["purl"] == f"pkg:huggingface/{MODEL}@{hub.commit(MODEL)}"


def test_the_same_commit_gives_the_same_repository(hub: support.Hub, tmp_path: Path) -> None:
    """Also offline, and of a folder with the same files but for its origin."""
    commit = f"hf://{TINY}@{hub.commit(TINY)}"
    for name, offline, output in ((TINY, "", "first"), (commit, "1", "offline")):
        done = run(hub, tmp_path, "build", "--model", name, "-o", output, HF_HUB_OFFLINE=offline)
        assert done.returncode == 0, done.stderr
    assert tiny.tree(tmp_path / "first") == tiny.tree(tmp_path / "offline")
    trb("build", "--model", hub.folder / TINY, "--output", tmp_path / "folder")
    trees = [_without_origin(tmp_path / name) for name in ("first", "folder")]
    assert trees[0] == trees[1]


def _without_origin(repository: Path) -> dict[str, str | bytes]:
    """Every file but the manifest, without the parameters that state an origin."""
    files = (path for path in repository.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {
        path.relative_to(repository).as_posix(): ORIGIN.sub("", path.read_text())
        if path.name == "config.pbtxt"
        else path.read_bytes()
        for path in files
    }


def test_refusals_are_one_line_and_write_nothing(hub: support.Hub, tmp_path: Path) -> None:
    for name, offline, code in (
        ("tiny/weights", "", Code.NOT_FOUND),
        ("tiny/unknown", "1", Code.NOT_FOUND),
    ):
        done = run(hub, tmp_path, "build", "--model", name, HF_HUB_OFFLINE=offline)
        assert (kind(done.stderr), done.returncode) == (code, int(code.exit))
        assert [line.split(":")[0].strip() for line in done.stderr.splitlines()] == ["error", "fix"]
        assert f"hf://{name}: " in done.stderr
        assert not (tmp_path / "model_repository").exists()


def test_inspect_and_optimize_take_names(hub: support.Hub, tmp_path: Path) -> None:
    done = run(hub, tmp_path, "inspect", TINY, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["task"] == "embedding"
    done = run(hub, tmp_path, "optimize", TINY, "-o", "faster", "--steps", "int8:per-row", "--max-drop", "1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "faster" / "recipe.json").is_file()
