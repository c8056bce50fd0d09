"""Why a GPU instance cannot run here, and what to install: ONNX Runtime itself would fall back to the CPU."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime as ort

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import INTERNAL, Refused
else:
    from ort_errors import INTERNAL, Refused

PACKAGE = "onnxruntime-gpu"
WANTED = {"cuda", "cudnn"}
"""Extras of the package that bring NVIDIA's libraries as wheels; since 1.21."""
FAILURE = re.compile(r"CUDA failure (?:3|34|35|36|100|803|804): [^;]*[^; ]")
"""Of the driver, by the numbers of cudaError; others, such as too little memory, are the model's."""
DRIVER = re.compile(r"libcuda\.so|undefined symbol: cu[A-Z]")
"""The library that comes with the driver, missing or too old."""


def no_provider() -> Refused:
    """This ONNX Runtime was built without CUDA."""
    return _refused(
        f"the installed ONNX Runtime {ort.__version__} has no CUDA",
        f"pip uninstall -y onnxruntime {PACKAGE}, then pip install '{PACKAGE}[cuda,cudnn]'",
    )


def not_loaded() -> Refused:
    """ONNX Runtime opened the session without CUDA, and says why in its log only."""
    reason = _missing_library("cuda")
    if not reason:
        return _refused(f"ONNX Runtime {ort.__version__} left it out; its reason is in the server's log", "")
    remedy = _driver() if DRIVER.search(reason) else f"install CUDA and cuDNN: {_install()}"
    return _refused(f"ONNX Runtime {ort.__version__} cannot load it: {reason}", remedy)


def no_tensorrt() -> Refused:
    """The configuration asks for TensorRT; ONNX Runtime would take CUDA, and say so in its log only."""
    reason = _missing_library("tensorrt") or "ONNX Runtime left it out; its reason is in the server's log"
    remedy = "put the libraries of TensorRT 10 on LD_LIBRARY_PATH, or build without --accelerator"
    return Refused(f"the accelerator needs TensorRT: {reason}; {remedy}", INTERNAL)


def failed(error: Refused) -> Refused:
    """The same refusal, or what it says of the driver without ONNX Runtime's own source lines."""
    found = FAILURE.search(str(error))
    return _refused(found[0], _driver()) if found else error


def _refused(reason: str, remedy: str) -> Refused:
    text = f"a GPU instance needs CUDA: {reason}"
    return Refused(f"{text}; {remedy}" if remedy else text, INTERNAL)


def _missing_library(provider: str) -> str:
    """What the loader says of the provider, e.g. ``cuda``; it names the first library that is missing.

    Only after ONNX Runtime tried by itself: the provider takes its host when it is loaded, once and for all.
    """
    file = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{provider}.so"
    try:
        ctypes.CDLL(str(file))
    except OSError as error:
        return str(error)
    return ""


def _install() -> str:
    from importlib import metadata  # large, and rarely needed: each instance is a process

    try:
        extras = set(metadata.metadata(PACKAGE).get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:  # built from source, or conda's
        extras = set()
    if extras >= WANTED:
        return f"pip install '{PACKAGE}[cuda,cudnn]=={metadata.version(PACKAGE)}'"
    return f"pip install -U '{PACKAGE}[cuda,cudnn]'"


def _driver() -> str:
    major = str(getattr(ort, "cuda_version", "") or "").split(".")[0]
    return (
        f"install an NVIDIA driver for CUDA {major}".rstrip() + " or newer (nvidia-smi shows what it takes)"
    )
