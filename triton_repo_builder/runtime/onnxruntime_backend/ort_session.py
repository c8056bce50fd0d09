"""From a version directory to an open ONNX Runtime session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend import ort_gpu
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import (
        INTERNAL,
        UNAVAILABLE,
        Refused,
        ort_text,
    )
    from triton_repo_builder.runtime.onnxruntime_backend.ort_providers import (
        CPU,
        CUDA,
        TENSORRT,
        Provider,
        providers,
        wants_tensorrt,
    )
    from triton_repo_builder.runtime.onnxruntime_backend.ort_settings import session_options
else:
    import ort_gpu
    from ort_errors import INTERNAL, UNAVAILABLE, Refused, ort_text
    from ort_providers import CPU, CUDA, TENSORRT, providers, wants_tensorrt
    from ort_settings import session_options

SLOWER = ["SkipLayerNormFusion"] if tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 30) else []
"""On a CPU: one kernel that takes longer than the sum and the layer norm that it replaces."""


def model_file(config: dict[str, Any], version: Path) -> Path:
    """The model in a version directory: ``default_model_filename``, or ``model.onnx`` inside it."""
    path = version / (config.get("default_model_filename") or "model.onnx")
    if not path.exists():
        raise Refused(f"failed to stat file {path}", INTERNAL)
    if path.is_dir():
        path = path / "model.onnx"
        if not path.exists():
            raise Refused(f"unable to find '{path}' for model instance '{config['name']}'", UNAVAILABLE)
    return path


def open_session(config: dict[str, Any], version: Path, kind: str, device: str) -> ort.InferenceSession:
    """The session of one instance, refused in the words of the C++ backend where it cannot be opened."""
    options = session_options(config)
    path = model_file(config, version)
    available = ort.get_available_providers()
    requested = providers(config, kind, device, available)
    return (_open_on_gpu if kind == "GPU" else _open)(config, path, options, requested)


def open_for_reading(config: dict[str, Any], version: Path) -> ort.InferenceSession:
    """A session that is only asked for its inputs and outputs: nothing is optimised or packed."""
    options = session_options(config)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    return _open(config, model_file(config, version), options, [(CPU, {})])


def open_graph(config: dict[str, Any], graph: bytes, folder: Path) -> ort.InferenceSession:
    """A session on a graph in memory that is only asked for its outputs: optimised, but not packed.

    ``folder`` has its external data.
    """
    options = session_options(config)
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return _open(config, graph, options, [(CPU, {})])


def _open_on_gpu(
    config: dict[str, Any], path: Path, options: ort.SessionOptions, requested: list[Provider]
) -> ort.InferenceSession:
    """Refused where it would run on something else than is asked for, and nobody would know."""
    if CUDA not in (name for name, _ in requested):
        raise ort_gpu.no_provider()
    if hasattr(ort, "preload_dlls"):
        # CUDA and cuDNN from their wheels, when they are installed; does nothing otherwise.
        ort.preload_dlls()
    try:
        session = _open(config, path, options, requested)
    except Refused as refused:
        raise ort_gpu.failed(refused) from None
    if CUDA not in session.get_providers():
        raise ort_gpu.not_loaded()
    if wants_tensorrt(config) and TENSORRT not in session.get_providers():
        raise ort_gpu.no_tensorrt()
    return session


def _open(
    config: dict[str, Any], model: Path | bytes, options: ort.SessionOptions, requested: list[Provider]
) -> ort.InferenceSession:
    # What goes wrong reaches the user as the load error; ONNX Runtime would print it a second time. But why
    # it leaves a provider out, it says in its log only.
    ort.set_default_logger_severity(4 if len(requested) == 1 else 3)
    libraries = (config.get("model_operations") or {}).get("op_library_filename") or []
    try:
        for library in libraries:
            options.register_custom_ops_library(library)
        # Its Python class would open the session on the CPU when a driver is too old for CUDA.
        return ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=requested,
            enable_fallback=0,
            disabled_optimizers=SLOWER if all(name == CPU for name, _ in requested) else [],
        )
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        raise Refused(ort_text(error), INTERNAL) from None
