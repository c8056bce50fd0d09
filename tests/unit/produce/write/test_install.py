"""A served repository goes from one state to another as a whole; the user's own files stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write import install
from triton_repo_builder.produce.write.install import Piece
from triton_repo_builder.repository import Manifest, manifest
from triton_repo_builder.repository.journal import swap


def state(files: dict[str, str]) -> dict[str, Piece]:
    return {path: Piece.of(text.encode()) for path, text in files.items()}


def of(pieces: dict[str, Piece]) -> Manifest:
    return Manifest(files={path: piece.record for path, piece in pieces.items()})


OLD = state({"m/config.pbtxt": "a", "m/1/model.onnx": "one", "m/1/same": "x", "gone/config.pbtxt": "g"})
NEW = state({"m/config.pbtxt": "b", "m/1/model.onnx": "one", "m/1/same": "x", "m/2/model.onnx": "two"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    install.install(root, {}, OLD, (), of(OLD))
    (root / "gone" / "mine.txt").write_text("mine")
    (root / "m" / "1" / "mine.txt").write_text("mine")
    return root


def contents(root: Path) -> dict[str, str]:
    found = {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*") if p.is_file()}
    return {path: text for path, text in found.items() if path != "manifest.json"}


def test_only_what_changes_is_renamed_and_own_files_stay(root: Path) -> None:
    kept = (root / "m" / "1").stat().st_ino
    own = install.foreign(root, ("m", "gone"), of(OLD).files)
    assert own == ("gone/mine.txt", "m/1/mine.txt")
    install.install(root, OLD, NEW, own, of(NEW))
    mine = {"gone/mine.txt": "mine", "m/1/mine.txt": "mine"}
    assert contents(root) == {**{path: piece.bytes.decode() for path, piece in NEW.items()}, **mine}
    assert (root / "m" / "1").stat().st_ino == kept
    assert manifest.read(root) == of(NEW)


def test_a_version_that_changes_keeps_the_users_files_in_it(root: Path) -> None:
    other = {**OLD, **state({"m/1/model.onnx": "other"})}
    own = install.foreign(root, ("m", "gone"), of(OLD).files)
    install.install(root, OLD, other, own, of(other))
    assert (root / "m" / "1" / "mine.txt").read_text() == "mine"
    assert (root / "m" / "1" / "model.onnx").read_text() == "other"


def test_a_folder_without_files_goes(root: Path) -> None:
    install.install(root, OLD, {}, (), of({}))
    assert not (root / "m" / "config.pbtxt").exists()
    empty = state({"n/1/a": "a"})
    install.install(root, {}, empty, (), of(empty))
    install.install(root, empty, {}, (), of({}))
    assert not (root / "n").exists()


def test_a_failure_leaves_all_as_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(root)
    text = (root / "manifest.json").read_text()

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(swap.files, "sync", full)
    with pytest.raises(TrbError) as caught:
        install.install(root, OLD, NEW, (), of(NEW))
    assert caught.value.code == Code.DISK_FULL
    assert contents(root) == before
    assert (root / "manifest.json").read_text() == text


def test_a_state_is_read_as_it_is_and_outlives_its_files(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "SMALL", 2)
    (root / "m" / "1" / "model.onnx").write_text("edited")
    read = install.read(root, {**of(OLD).files, "m/absent": OLD["m/config.pbtxt"].record})
    assert read.keys() == OLD.keys()
    assert read["m/1/model.onnx"].record != OLD["m/1/model.onnx"].record
    held = install.linked(read, tmp_path / "held")
    (root / "m" / "1" / "model.onnx").unlink()
    assert held["m/1/model.onnx"].bytes == b"edited"
