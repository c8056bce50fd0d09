"""What the pass needs: looked at before anything is measured, and named with the command that mends it.

Nothing but the standard library is imported before it is known to be there.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_steps.step import GPU, ROOT, Setting, StepFailed, gpus

PACKAGES = (
    "click",
    "jinja2",
    "numpy",
    "onnx",
    "onnxruntime",
    "pytriton",
    "tokenizers",
    "transformers",
    "tritonclient",
)
LIBRARIES = ("libcudart.so", "libcublas.so", "libcublasLt.so", "libcufft.so", "libcurand.so", "libcudnn.so")
PACK = "python benchmarks/gpu.py prepare --pack .cache/gpu-pack where there is a package index; send it"
UNPACK = "python3 benchmarks/gpu.py prepare --unpack .cache/gpu-pack, .venv-gpu/bin/python benchmarks/gpu.py"
TINY = ROOT / "tests" / "data" / "models" / "embedding" / "minilm_fp32" / "model.onnx"


def run(setting: Setting) -> dict[str, Any]:
    """Versions and places; raises ``StepFailed`` naming everything that is missing, all at once."""
    found = {"gpus": gpus(), "cuda": cuda_libraries(), "torch": _version("torch"), "versions": versions()}
    missing = list(_missing(setting))
    found["missing"] = missing
    if missing:
        raise StepFailed("; ".join(f"{each['what']}: {each['remedy']}" for each in missing), found)
    return found


def _missing(setting: Setting) -> Iterator[dict[str, str]]:
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        yield _lack(f"Python packages {', '.join(absent)}", f"{PACK}; there: {UNPACK}")
    if setting.device == GPU:
        if not gpus():
            yield _lack(
                "no GPU: nvidia-smi lists none", "run it on a machine with an NVIDIA GPU, or --device cpu"
            )
        if not cuda_libraries():
            yield _lack(
                "no CUDA libraries: neither torch's nor pip's nvidia packages, nor on the loader's path",
                "pip install torch, or pip install 'onnxruntime-gpu[cuda,cudnn]'",
            )
    if absent:
        return
    from triton_repo_builder.base.errors import TrbError
    from triton_repo_builder.run.serve.embedded import install

    try:
        install.find()
    except TrbError as error:
        yield _lack(f"the embedded tritonserver: {error.message}", error.remedy or "")
    if setting.device == GPU and gpus() and (refusal := _session()):
        yield _lack("ONNX Runtime with CUDA", refusal)


def _lack(what: str, remedy: str) -> dict[str, str]:
    return {"what": what, "remedy": remedy}


def _session() -> str:
    """Open a model as the server's backend does; what it says where it refuses."""
    sys.path.append(str(ROOT / "triton_repo_builder" / "runtime" / "onnxruntime_backend"))
    session = importlib.import_module("ort_session")
    refused = importlib.import_module("ort_errors").Refused
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(TINY, Path(folder) / "model.onnx")
        try:
            session.open_session({"name": "tiny"}, Path(folder), "GPU", "0")
        except refused as error:
            return str(error)
    return ""


def library_folders() -> list[str]:
    """Where torch and NVIDIA's wheels keep CUDA and cuDNN, on every path of this Python and its base."""
    folders: dict[str, None] = {}
    places = [Path(place) for place in sys.path if Path(place).name.endswith("-packages")]
    for place in places:
        for folder in (*sorted(place.glob("nvidia/*/lib")), place / "torch" / "lib"):
            if folder.is_dir():
                folders[str(folder)] = None
    return list(folders)


def cuda_libraries() -> list[str]:
    """File names of those there are: their numbers say which ONNX Runtime fits."""
    found = {
        file.name
        for folder in library_folders()
        for name in LIBRARIES
        for file in Path(folder).glob(f"{name}.*")
    }
    for name in LIBRARIES:
        for number in ("13", "12", "10", "9"):
            with contextlib.suppress(OSError):
                ctypes.CDLL(f"{name}.{number}")
                found.add(f"{name}.{number}")
    return sorted(found)


def library_path() -> dict[str, str]:
    """The loader's variable with those folders; it counts for processes that are started with it."""
    before = os.environ.get("LD_LIBRARY_PATH", "")
    folders = [*library_folders(), *([before] if before else [])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    names = (
        "numpy",
        "onnxruntime-gpu",
        "onnxruntime",
        "nvidia-pytriton",
        "tokenizers",
        "transformers",
        "torch",
    )
    return {name: version for name in names if (version := _version(name))}
