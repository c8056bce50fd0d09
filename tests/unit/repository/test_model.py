from __future__ import annotations

import os
from pathlib import Path

import pytest

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_a_hand_made_repository(tmp_path: Path) -> None:
    lay_out(
        tmp_path,
        {
            "a/config.pbtxt": 'backend: "onnxruntime"',
            "a/2/model.onnx": "",
            "a/10/model.onnx": "",
            "a/01/x": "",
            "a/v1/x": "",
            "e/config.pbtxt": 'platform: "ensemble" ensemble_scheduling { step { model_name: "a" } }',
            "old/config.pbtxt": 'platform: "onnxruntime_onnx"',
            "bare/1/model.onnx": "",
            "broken/config.pbtxt": "max_batch_size: x",
            "README.md": "no model",
        },
    )
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / "config.pbtxt").write_bytes(b'name: "\xe9"')
    read = repository.read(tmp_path)
    assert [model.name for model in read.models] == ["a", "bare", "broken", "e", "latin", "old"]
    models = {model.name: model for model in read.models}
    assert models["a"].versions == (2, 10)
    assert [models[name].backend for name in ("a", "e", "old", "bare")] == [
        "onnxruntime",
        "ensemble",
        "onnxruntime",
        "",
    ]
    assert (models["bare"].text, models["bare"].error) == (None, None)
    assert str(models["broken"].error).startswith("1:17: ")
    assert str(models["latin"].error) == "1:1: not UTF-8 text: invalid continuation byte"
    lenient = repository.read(tmp_path, lenient=True).model("latin")
    assert lenient is not None
    assert (lenient.error, lenient.config.name) == (None, "\ufffd")
    assert models["e"].steps == ("a",)
    assert [model.name for model in read.endpoints] == ["bare", "broken", "e", "latin", "old"]
    assert read.model("nowhere") is None
    assert read.manifest is None


@pytest.mark.parametrize(
    "content", ["{}", "[]", '{"files": {}}', '"text"', '{"name": "a web app", "icons": []}']
)
def test_a_manifest_of_something_else_is_none(content: str, tmp_path: Path) -> None:
    lay_out(tmp_path, {"manifest.json": content})
    assert repository.read(tmp_path).manifest is None


@pytest.mark.parametrize(
    "content", ["{", '{"endpoints": [], "files": {}}', '{"endpoints": {"a": {"models": "a"}}, "files": {}}']
)
def test_a_damaged_manifest(content: str, tmp_path: Path) -> None:
    lay_out(tmp_path, {"manifest.json": content})
    with pytest.raises(TrbError) as caught:
        repository.read(tmp_path)
    assert caught.value.code == Code.REPOSITORY_UNREADABLE
    assert caught.value.where == str(tmp_path / "manifest.json")


def test_no_repository(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", lay_out(tmp_path, {"file": ""}) / "file"):
        with pytest.raises(TrbError) as caught:
            repository.read(path)
        assert caught.value.code == Code.REPOSITORY_UNREADABLE


PIPES = ["a/config.pbtxt", "a/1/shared/config.pbtxt", "a/smoke.json", "manifest.json"]


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_refused_for_reading_it_would_never_end(tmp_path: Path, name: str) -> None:
    lay_out(tmp_path, {"a/1/shared/labels.txt": "", "b/1/model.onnx": ""})
    os.mkfifo(tmp_path / name)
    with pytest.raises(TrbError) as raised:
        repository.read(tmp_path)
    assert raised.value.code is Code.REPOSITORY_UNREADABLE
    assert raised.value.where == str(tmp_path / name)


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_kept_for_the_check(tmp_path: Path, name: str) -> None:
    lay_out(tmp_path, {"a/1/shared/labels.txt": "", "b/1/model.onnx": ""})
    os.mkfifo(tmp_path / name)
    read = repository.read(tmp_path, lenient=True)
    assert [model.name for model in read.models] == ["a", "b"]
    assert read.pipes == (tmp_path / name,)


def test_a_socket_of_git_is_no_part_of_the_repository(tmp_path: Path) -> None:
    lay_out(tmp_path, {"a/1/model.onnx": "", ".git/HEAD": ""})
    os.mkfifo(tmp_path / ".git" / "fsmonitor--daemon.ipc")
    assert "a" in [model.name for model in repository.read(tmp_path).models]


def test_a_link_that_leads_nowhere_is_no_pipe(tmp_path: Path) -> None:
    lay_out(tmp_path, {"a/1/model.onnx": ""})
    (tmp_path / "a" / "gone").symlink_to("nowhere")
    (tmp_path / "a" / "above").symlink_to("..")
    assert [model.name for model in repository.read(tmp_path).models] == ["a"]
