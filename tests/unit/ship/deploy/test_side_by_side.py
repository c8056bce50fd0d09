"""The states between two revisions of an ensemble of which both steps change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import install, ownership
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.ship.deploy import stages
from triton_repo_builder.ship.deploy.stage import Change, RepositoryState, Stage

NAME, MODEL, TOKENIZER = MODELS = ("sentiment", "sentiment_model", "sentiment_tokenizer")
FREE = 7


def state(folder: Path) -> RepositoryState:
    manifest = ownership.previous(folder)
    return RepositoryState(manifest=manifest, state=install.read(folder, manifest.files))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    tiny.classifier(tmp_path / "classifier")
    tiny.put(tmp_path / "classifier", tmp_path / "old", name=NAME)
    return tmp_path / "old"


def edited(old: Path, *models: str) -> Path:
    """The same revision with other files in version 1 of these models."""
    new = old.with_name("new")
    shutil.copytree(old, new)
    for file in (path for model in models for path in (new / model / "1").rglob("*") if path.is_file()):
        file.write_bytes(file.read_bytes() + b"\n")
    return new


def change(old: Path, new: Path) -> Change:
    return Change(current=state(old), target=state(new), name=NAME, models=MODELS, free=FREE)


def steps(stage: Stage) -> dict[str, int]:
    """The versions that the ensemble of a stage runs."""
    config = ModelConfig(pbtxt.parse(stage.state[f"{NAME}/config.pbtxt"].bytes.decode()))
    return {step.model_name: step.model_version for step in config.steps}


def folders(stage: Stage, model: str) -> set[str]:
    """The version folders of a model."""
    parts = [path.split("/") for path in stage.state if path.startswith(f"{model}/")]
    return {part[1] for part in parts if len(part) > 2 and part[1].isdigit()}


def test_the_same_number_goes_through_a_free_one(old: Path) -> None:
    listed = stages.changing(change(old, edited(old, MODEL, TOKENIZER)), interrupt=False)
    pin, beside, switch, number, settle, final = listed
    assert [steps(stage)[MODEL] for stage in listed] == [1, 1, FREE, FREE, 1, -1]
    assert [steps(stage)[TOKENIZER] for stage in listed[:5]] == [1, 1, FREE, FREE, 1]
    assert [stage.proven for stage in listed] == [False, False, True, False, False, False]
    assert [stage.loads for stage in (pin, switch, settle)] == [(NAME,)] * 3
    assert set(beside.loads) == set(number.loads) == {MODEL, TOKENIZER}
    assert beside.expected == number.expected == {MODEL: (1, FREE), TOKENIZER: (1, FREE)}
    assert folders(pin, MODEL) == folders(final, MODEL) == {"1"}
    assert folders(beside, MODEL) == folders(settle, TOKENIZER) == {"1", str(FREE)}
    file = f"{MODEL}/1/model.onnx"
    before, after = pin.state[file].record, final.state[file].record
    assert before != after
    assert (beside.state[file].record, number.state[file].record) == (before, after)
    assert beside.state[f"{MODEL}/{FREE}/model.onnx"].record == after


def test_another_number_needs_no_free_one(old: Path) -> None:
    new = old.with_name("new")
    tiny.put(old.with_name("classifier"), new, name=NAME, version=2)
    listed = stages.changing(change(old, new), interrupt=False)
    assert [steps(stage)[MODEL] for stage in listed] == [1, 1, 2, -1]
    assert listed[1].expected == {MODEL: (1, 2), TOKENIZER: (1, 2)}
    assert (listed[0].entry, listed[-1].entry) == (
        state(old).manifest.endpoints[NAME],
        state(new).manifest.endpoints[NAME],
    )


def test_one_step_alone_is_loaded_in_place(old: Path) -> None:
    [only] = stages.changing(change(old, edited(old, MODEL)), interrupt=False)
    assert (only.loads, only.proven) == ((MODEL, NAME), True)


def test_another_interface_is_refused_unless_it_may_interrupt(old: Path) -> None:
    new = old.with_name("new")
    tiny.classifier(old.with_name("wider"), labels=5)
    tiny.put(old.with_name("wider"), new, name=NAME, version=2)
    with pytest.raises(TrbError, match="old and new cannot be loaded at once") as caught:
        stages.changing(change(old, new), interrupt=False)
    assert caught.value.code is Code.APPLY_FAILED
    [only] = stages.changing(change(old, new), interrupt=True)
    assert only.unloads[0] == NAME
    assert set(only.unloads) == set(MODELS)
