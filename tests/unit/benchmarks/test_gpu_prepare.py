"""Wheels in parts, and what is chosen of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from gpu_steps import prepare

    monkeypatch.setattr(prepare, "PART", 1000)
    return prepare


@pytest.fixture
def pack(prepare: Any, tmp_path: Path) -> Path:
    sizes = {"a.whl": 2500, "b.whl": 300, "empty": 0, "c.whl": 1000}
    files = {}
    for number, (name, size) in enumerate(sizes.items()):
        files[f"wheels/{name}"] = tmp_path / name
        files[f"wheels/{name}"].write_bytes(bytes([number]) * size)
    target = tmp_path / "pack"
    prepare.split(files, target)
    return target


def test_parts_and_folders_can_be_sent_one_at_a_time(pack: Path) -> None:
    folders = sorted(pack.glob("load-*"))
    assert len(folders) > 2
    for folder in folders:
        assert sum(file.stat().st_size for file in folder.iterdir()) <= 1000


def test_joined_they_are_what_they_were(prepare: Any, pack: Path, tmp_path: Path) -> None:
    made = prepare.join(pack, tmp_path / "joined")
    assert [file.name for file in made] == ["a.whl", "b.whl", "empty", "c.whl"]
    for file in made:
        assert file.read_bytes() == (tmp_path / file.name).read_bytes()


def test_parts_that_are_missing_or_damaged_are_named(prepare: Any, pack: Path, tmp_path: Path) -> None:
    part = next(pack.glob("*/a.whl.part01"))
    part.write_bytes(b"x" * 1000)
    with pytest.raises(SystemExit, match=r"damaged on the way, send their parts again: wheels/a\.whl$"):
        prepare.join(pack, tmp_path / "joined")
    part.unlink()
    with pytest.raises(SystemExit, match=r"1 parts are missing in .*/a\.whl\.part01$"):
        prepare.join(pack, tmp_path / "joined")
    (pack / "pack.json").unlink()
    with pytest.raises(SystemExit, match=r"pack\.json is missing"):
        prepare.join(pack, tmp_path / "joined")


def test_another_folder_is_not_replaced(prepare: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(SystemExit, match="holds other files than a pack"):
        prepare.split({}, tmp_path)
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("libraries", "version"),
    [
        ((), "1.31.1"),
        (("libcublasLt.so.13",), "1.31.1"),
        (("libcublasLt.so.12",), "1.23.2"),
        (("libcublasLt.so.12", "libcublasLt.so.13"), "1.31.1"),
    ],
)
def test_the_cuda_that_is_there_decides(prepare: Any, libraries: tuple[str, ...], version: str) -> None:
    names = ("onnxruntime_gpu-1.23.2-cp312.whl", "onnxruntime_gpu-1.31.1-cp312.whl", "numpy-1.26.4-cp312.whl")
    chosen = prepare.choose([Path(name) for name in names], libraries)
    assert [file.name for file in chosen] == [f"onnxruntime_gpu-{version}-cp312.whl", names[2]]


def test_every_package_of_the_project_is_packed_in_its_pin(prepare: Any) -> None:
    pins = prepare._pins()
    assert {name: pins[name].split("==")[0] for name in prepare.WANTED.split()}
