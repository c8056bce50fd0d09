"""Links of a clone that lead out of it: no command takes in, or changes, what they lead to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny
from cli import call, kind

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check import fixes


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    tiny.classifier(folder / "model")
    assert call("build", "--model", "model", "--name", "sentiment", cwd=folder).returncode == 0
    return folder


@pytest.fixture
def clone(original: Path, tmp_path: Path) -> Path:
    """With a file of the user's beside it."""
    shutil.copytree(original, tmp_path / "clone")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "id_rsa").write_text("secret")
    return tmp_path / "clone"


BUILD = ("build", "--model", "model", "--name", "sentiment", "--force")


@pytest.mark.parametrize("command", [BUILD, ("remove", "sentiment", "--force")])
def test_a_model_folder_that_is_a_link(clone: Path, command: tuple[str, ...]) -> None:
    model = clone / "model_repository" / "sentiment"
    shutil.rmtree(model)
    model.symlink_to("../../victim")
    before = tiny.tree(clone.parent)
    done = call(*command, cwd=clone)
    assert kind(done.stderr) is Code.OUTPUT_FOREIGN
    assert tiny.tree(clone.parent) == before


@pytest.mark.parametrize("place", ["sentiment_model/labels.txt", "sentiment/config.pbtxt"])
def test_a_recorded_file_that_is_a_link(clone: Path, place: str) -> None:
    """The next version keeps the files of the one before: with --force as well it takes in nothing."""
    file = clone / "model_repository" / place
    file.unlink()
    file.symlink_to("../../../victim/id_rsa")
    before = tiny.tree(clone.parent)
    done = call(*BUILD, "--version", "2", cwd=clone)
    assert kind(done.stderr) is Code.OUTPUT_FOREIGN
    assert tiny.tree(clone.parent) == before


def test_a_correction_is_not_written_through_a_link(clone: Path) -> None:
    """As trb check --fix --write has it written."""
    config = clone / "model_repository" / "sentiment_model" / "config.pbtxt"
    config.unlink()
    config.symlink_to("../../../victim/id_rsa")
    with pytest.raises(TrbError) as caught:
        fixes.write({str(config): "evil"})
    assert caught.value.code is Code.OUTPUT_FOREIGN
    assert (clone.parent / "victim" / "id_rsa").read_text() == "secret"


@pytest.mark.parametrize(
    "line", ['output = "../victim"', 'tokenizer = "../victim/id_rsa"', 'tokenizers_wheel = "evil.whl"']
)
def test_the_trb_toml_of_the_current_folder(clone: Path, line: str) -> None:
    """It names nothing outside of its folder, and no code; one that --config names may."""
    (clone / "trb.toml").write_text(f"[build]\n{line}\n")
    (clone / "evil.whl").write_bytes(b"")
    before = tiny.tree(clone.parent)
    done = call(*BUILD, cwd=clone)
    assert kind(done.stderr) in (Code.OUTSIDE_FOLDER, Code.USAGE)
    assert "--config trb.toml" in done.stderr
    assert tiny.tree(clone.parent) == before


@pytest.mark.parametrize("place", ["sentiment_model/config.pbtxt", "sentiment_tokenizer/1/model.py"])
@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit"])
def test_a_check_shows_nothing_of_what_a_link_leads_to(clone: Path, place: str, form: str) -> None:
    (clone.parent / "victim" / "id_rsa").write_text("hunter2 = = 'hunter2'\n")
    file = clone / "model_repository" / place
    file.unlink()
    file.symlink_to(clone.parent / "victim" / "id_rsa")
    done = call("check", "--format", form, cwd=clone)
    assert "its content is not shown" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "line",
    [
        'baseline = "../victim/id_rsa"',
        'policies = ["../victim/id_rsa"]',
        'modules = ["../victim/id_rsa"]',
        'baseline = "link"',
    ],
)
def test_a_check_table_reaches_out_of_no_folder(clone: Path, line: str) -> None:
    (clone / "link").symlink_to("../victim/id_rsa")
    (clone / "trb.toml").write_text(f"[check]\n{line}\n")
    done = call("check", cwd=clone)
    assert kind(done.stderr) is Code.OUTSIDE_FOLDER
    assert "use --config trb.toml if you trust that file" in done.stderr
    assert "outside-folder" not in call("check", "--config", "trb.toml", cwd=clone).stderr


def test_a_trb_toml_that_is_a_link(clone: Path) -> None:
    (clone / "trb.toml").symlink_to("../victim/id_rsa")
    assert kind(call("check", cwd=clone).stderr) is Code.OUTSIDE_FOLDER
