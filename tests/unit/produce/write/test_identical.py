"""A version is added for its content, not for its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import two_versions

from tests.support.cli import call, trb
from triton_repo_builder.base.errors import Code
from triton_repo_builder.produce.write import identical, publish, versions


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_versions.make(tmp_path_factory.mktemp("models"))


def put(model: Path, output: Path, version: int, **options: Any) -> None:
    made = tiny.make(model, output, version=version, golden=True, **options)
    publish.publish(publish.prepare(versions.place(made, output, serve=False), output))


def twin(model: Path, output: Path, version: int, **options: Any) -> int | None:
    return identical.twin(tiny.make(model, output, version=version, golden=True, **options), output)


def test_the_same_content_is_found_under_its_own_number(models: tuple[Path, Path], output: Path) -> None:
    assert twin(models[0], output, 1) is None
    put(models[0], output, 1)
    assert twin(models[0], output, 2) == 1
    assert twin(models[1], output, 2) is None
    assert twin(models[0], output, 2, source_run="run-2") is None  # it says so itself, in config.pbtxt
    assert twin(models[0], output, 2, instances=3) is None
    put(models[1], output, 2)
    assert (twin(models[0], output, 3), twin(models[1], output, 3)) == (1, 2)
    assert twin(models[0], output, 1) is None  # its own number: an ordinary build


@pytest.mark.parametrize("name", ["sentiment_model/1/weights.onnx", "sentiment_model/config.pbtxt"])
def test_a_file_that_was_altered_is_not_the_same_content(
    models: tuple[Path, Path], output: Path, name: str
) -> None:
    put(models[0], output, 1)
    content = bytearray((output / name).read_bytes())
    content[len(content) // 2] ^= 1
    (output / name).unlink()
    (output / name).write_bytes(content)
    assert twin(models[0], output, 2) is None


def test_the_command_adds_nothing_and_says_so(models: tuple[Path, Path], output: Path) -> None:
    build = ("build", "--model", str(models[0]), "--output", str(output))
    trb(*build)
    before = tiny.tree(output)
    for more in (("--version", "next"), ("--version", "7"), ("--version", "next", "--dry-run")):
        said = json.loads(trb(*build, *more, "--json"))
        assert (said["identical_to"], said["version"]) == (1, 1)
        assert said["changes"] == {"added": [], "changed": [], "removed": []}
        assert tiny.tree(output) == before
        assert "unchanged" in trb(*build, *more) or "--dry-run" in more
    assert trb(*build, "--version", "next", "--diff").strip() == "no change"
    trb("build", "--model", str(models[1]), "--output", str(output), "--version", "next")
    said = json.loads(
        trb("build", "--model", str(models[1]), "--output", str(output), "--version", "next", "--json")
    )
    assert said["identical_to"] == 2
    assert any(f"trb promote sentiment {output} --version 2" in note for note in said["notes"])
    said = json.loads(trb(*build, "--version", "next", "--force", "--json"))
    assert (said["identical_to"], [*said["versions"]]) == (None, ["2", "3"])


@pytest.mark.parametrize("preview", ["--dry-run", "--diff"])
def test_a_preview_is_refused_as_the_build_is(models: tuple[Path, Path], output: Path, preview: str) -> None:
    put(models[0], output, 1)
    build = ("build", "--model", str(models[1]), "--output", str(output), "--version", "next")
    refused = ("--max-batch-size", "4")
    done = [call(*build, *refused, *more) for more in ((), (preview,))]
    assert [each.returncode for each in done] == [Code.OUTPUT_FOREIGN.exit] * 2
    assert done[0].stderr == done[1].stderr
    assert call(*build, *refused, "--force", preview).returncode == 0
