"""Which backend serves a model: the server's rules for filling in what a config.pbtxt leaves out."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Model
from triton_repo_builder.repository.config import CONFIG, PLATFORMS
from triton_repo_builder.repository.model import VERSION

FILES = {
    "model.graphdef": "tensorflow",
    "model.savedmodel": "tensorflow",
    "model.plan": "tensorrt",
    "model.onnx": "onnxruntime",
    "model.xml": "openvino",
    "model.pt": "pytorch",
    "model.py": "python",
}
STOCK = frozenset({"dali", "fil", "onnxruntime", "openvino", "python", "pytorch", "tensorflow", "tensorrt"})
"""Backends of the py3 image that read a model file. It also has identity, repeat and square."""
_GONE = {"tensorflow": "25.03"}
"""The first release whose image lacks a backend."""
TOYS = frozenset({"identity", "repeat", "square"})
NEVER_COMPLETING = TOYS | {"ensemble", "fil", "pytorch"}
"""Backends that do not complete a configuration; DALI, TensorRT and the like may fill in tensors."""
MISSPELT = {
    "ensemble": 'an ensemble has platform: "ensemble" and no backend',
    "onnx": 'backend: "onnxruntime"',
    "onnxruntime_onnx": 'backend: "onnxruntime"',
    "ort": 'backend: "onnxruntime"',
    "py": 'backend: "python"',
    "pytorch_libtorch": 'backend: "pytorch"',
    "tensorrt_plan": 'backend: "tensorrt"',
    "torch": 'backend: "pytorch"',
    "trt": 'backend: "tensorrt"',
}


def refuse_model(place: Path) -> None:
    """Raise ``TrbError`` for a model's folder or a folder in it: the repository is the folder above."""
    folder = Path(os.path.normpath(place.absolute()))
    model = next((way for way in (folder, *folder.parents[:2]) if _is_model(way)), None)
    if model is None or any(_is_model(entry) for entry in _folders(folder)):
        return
    # A folder of another kind may hold a repository beside a stray config.pbtxt.
    inner = folder.relative_to(model).parts[:1]
    if inner and folder.exists() and not (inner[0] == CONFIG or VERSION.fullmatch(inner[0])):
        return
    above = str(model.parent) if place.is_absolute() else os.path.relpath(model.parent)
    raise TrbError(
        Code.REPOSITORY_UNREADABLE,
        f"belongs to the model '{model.name}', and is not a repository",
        where=str(place),
        remedy=f"name the folder above the model's: trb check {shlex.quote(above)}",
    )


def _is_model(folder: Path) -> bool:
    """Whether a folder holds a model: a configuration, or a version with a model file."""
    versions = [entry for entry in _folders(folder) if VERSION.fullmatch(entry.name)]
    with suppress(OSError):
        return (folder / CONFIG).is_file() or any(
            (entry / name).exists() for entry in versions for name in FILES
        )
    return False


def _folders(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [entry for entry in folder.iterdir() if entry.is_dir()]
    return []


def gone(backend: str, release: str) -> str:
    """First release without a backend of older releases; empty if ``release`` is older still."""
    first = _GONE.get(backend, "")
    return first if first and first <= release else ""


def meant(backend: str) -> str:
    """Backend of the image whose name differs only in case or surrounding blanks."""
    lower = backend.strip().lower()
    return lower if lower != backend and lower in STOCK | TOYS else ""


def is_ensemble(model: Model) -> bool:
    """Whether the model is intended to be an ensemble, declared correctly or not."""
    return model.config.platform == "ensemble" or model.config.has("ensemble_scheduling")


def backend_of(model: Model) -> str:
    """The backend that the server would choose, ``ensemble``, or "" if it would refuse.

    AutoCompleteBackendFields of core's model_config_utils.cc: backend, else platform, else the model's
    file in the lexicographically first sub-directory, else what follows the dot in the model's name.
    """
    config = model.config
    if config.backend:
        return config.backend
    if config.platform:
        return "ensemble" if config.platform == "ensemble" else PLATFORMS.get(config.platform, "")
    if config.default_model_filename:
        return FILES.get(config.default_model_filename, "")
    folders = sorted(entry for entry in model.path.iterdir() if entry.is_dir())
    for name, backend in FILES.items():
        if folders and (folders[0] / name).exists():
            return backend
    return model.name.partition(".")[2]


def filename_of(model: Model, backend: str) -> str | None:
    """The file a version directory must hold; None if the backend needs none or is unknown."""
    if named := model.config.default_model_filename:
        return named
    if backend == "tensorflow":
        graphdef = model.config.platform == "tensorflow_graphdef"
        return "model.graphdef" if graphdef else "model.savedmodel"
    usual = next((name for name, owner in FILES.items() if owner == backend), None)
    folders = [model.path / str(version) for version in model.selected]
    if by_capability(model, backend) and not any(usual and (folder / usual).exists() for folder in folders):
        return None
    return usual


def by_capability(model: Model, backend: str) -> Mapping[str, str]:
    """The files by compute capability (``7.5``) that an instance on a GPU prefers to the usual one.

    BackendModelInstance of the backend library; the Python backend does not read them, nor does the CPU.
    """
    kinds = {group.get("kind", "KIND_AUTO") for group in model.config.messages("instance_group")}
    on_gpu = not kinds or bool(kinds & {"KIND_AUTO", "KIND_GPU"})
    stated: Mapping[str, str] = model.config.raw.get("cc_model_filenames", {})
    return stated if on_gpu and backend != "python" else {}
