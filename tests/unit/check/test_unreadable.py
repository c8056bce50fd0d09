"""What cannot be read is one finding; the others, of the same model too, are there as well."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.check.finding import Finding

CONFIG = """
name: "other"
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: 4 } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: 4 label_filename: "labels.txt" } ]
model_warmup { name: "w" batch_size: 1 inputs {
  key: "X" value { data_type: TYPE_STRING dims: 4 input_data_file: "raw" } } }
"""
FILES = ("manifest.json", "m/config.pbtxt", "m/1/model.py", "m/1/helper.py", "m/labels.txt", "m/warmup/raw")
PLACES = ("stray", "m/1/stray", *FILES)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    texts = {"m/config.pbtxt": CONFIG, "n/config.pbtxt": CONFIG}
    for name in (*FILES, "n/config.pbtxt", "n/1/model.py", "n/labels.txt", "n/warmup/raw"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts.get(name, "import helper\n" if name.endswith("model.py") else "{}"))
    return tmp_path


def findings(root: Path) -> list[Finding]:
    return check.check(repository.read(root, lenient=True), releases.default())


def bind(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, socket.socket(socket.AF_UNIX) as bound:
        patch.chdir(path.parent)  # the name of a socket is short
        bound.bind(path.name)


@pytest.mark.parametrize("make", [os.mkfifo, bind, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_hides_nothing(root: Path, place: str, make: Callable[[Path], None]) -> None:
    before = {(each.file, each.code) for each in findings(root)}
    (root / place).unlink(missing_ok=True)
    make(root / place)
    found = findings(root)
    [finding] = [each for each in found if each.where == str(root / place)]
    assert finding.code == "file-unreadable"
    assert "pipe" in finding.message
    assert "remove it" in finding.remedy
    missing = before - {(each.file, each.code) for each in found}
    assert not any("/n/" in where for where, _ in missing)
    if place not in ("m/config.pbtxt", "m/1/model.py"):  # what these say is not known then
        assert not missing - {(str(root / "m" / "config.pbtxt"), "warmup-file")}


def hide(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Let no one see where a link leads, as root does not let others; the tests may run as root."""
    stat = Path.stat

    def refuse(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == place and follow_symlinks:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refuse)


@pytest.mark.parametrize("place", ["stray", "manifest.json", "m/1", "m/labels.txt", "m/stray"])
def test_a_link_that_this_user_cannot_follow(root: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link = root / place
    if link.exists():
        link.rename(root.parent / f"{root.name}-moved")
    link.symlink_to("elsewhere")
    hide(monkeypatch, link)
    found = {(each.where.removeprefix(f"{root}/").partition(":")[0], each.code) for each in findings(root)}
    assert (place, "file-unreadable") in found
    assert {("m/config.pbtxt", "name-mismatch"), ("n/config.pbtxt", "name-mismatch")} <= found


def test_a_label_file_with_a_name_too_long_hides_nothing(root: Path) -> None:
    config = root / "m" / "config.pbtxt"
    config.write_text(CONFIG.replace("labels.txt", "x" * 5000))
    (root / "m" / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    codes = {each.code for each in findings(root) if each.model == "m"}
    assert {"file-unreadable", "name-mismatch", "lfs-pointer"} <= codes


def test_one_recorded_file_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton_repo_builder.base import files
    from triton_repo_builder.check.rules import manifest
    from triton_repo_builder.repository.manifest import FileRecord, Manifest

    read, hashed = repository.read(root, lenient=True), files.hash_file

    def refuse(path: Path) -> str:
        if path.name == "helper.py":
            raise PermissionError(13, "Permission denied", str(path))
        return hashed(path)

    monkeypatch.setattr(files, "hash_file", refuse)
    records = {name: FileRecord(sha256="0", bytes=(root / name).stat().st_size) for name in FILES[1:]}
    built = repository.Repository(path=root, models=read.models, manifest=Manifest(files=records))
    codes = [each.code for each in manifest.check(built)]
    assert codes.count("file-unreadable") == 1
    assert codes.count("manifest-changed") == len(records) - 1
