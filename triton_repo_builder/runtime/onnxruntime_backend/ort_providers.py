"""Instance kind and ``optimization.execution_accelerators`` as ONNX Runtime's execution providers."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import Refused
    from triton_repo_builder.runtime.onnxruntime_backend.ort_settings import parameter, to_bool, to_int
else:
    from ort_errors import Refused
    from ort_settings import parameter, to_bool, to_int

Provider = tuple[str, dict[str, str]]

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"

_PRECISION = {"FP16": "trt_fp16_enable", "BF16": "trt_bf16_enable", "INT8": "trt_int8_enable"}
_RENAMED = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_TENSORRT_NAMES = """
    max_partition_iterations min_subgraph_size dla_enable dla_core engine_cache_enable engine_cache_path
    engine_cache_prefix dump_subgraphs force_sequential_engine_build context_memory_sharing_enable
    layer_norm_fp32_fallback timing_cache_enable timing_cache_path force_timing_cache detailed_build_log
    build_heuristics_enable sparsity_enable builder_optimization_level auxiliary_streams tactic_sources
    extra_plugin_lib_paths profile_min_shapes profile_max_shapes profile_opt_shapes cuda_graph_enable
    dump_ep_context_model ep_context_file_path ep_context_embed_mode
"""
_TENSORRT_KEYS = frozenset(f"trt_{name}" for name in _TENSORRT_NAMES.split())
_CONV_SEARCH = {0: "EXHAUSTIVE", 1: "HEURISTIC", 2: "DEFAULT"}
_ARENA = {0: "kNextPowerOfTwo", 1: "kSameAsRequested"}


def providers(config: dict[str, Any], kind: str, device: str, available: Collection[str]) -> list[Provider]:
    """The providers of one instance, best first; ``kind`` is CPU, GPU or MODEL.

    Providers that this build of ONNX Runtime lacks are left out: the caller refuses a GPU instance without.
    """
    chosen: list[Provider] = []
    if kind == "GPU":
        chosen += _gpu(config, _accelerators(config, "gpu"), device)
    for accelerator in _accelerators(config, "cpu"):
        if accelerator["name"] != "openvino" or OPENVINO not in available:
            raise _unknown(accelerator["name"])
        chosen.append((OPENVINO, {"device_type": "CPU"}))
    chosen.append((CPU, {}))
    return [provider for provider in chosen if provider[0] in available]


def wants_tensorrt(config: dict[str, Any]) -> bool:
    """Whether GPU instances are to run on TensorRT."""
    return any(accelerator["name"] == "tensorrt" for accelerator in _accelerators(config, "gpu"))


def _accelerators(config: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    named = (config.get("optimization") or {}).get("execution_accelerators") or {}
    return list(named.get(f"{kind}_execution_accelerator") or ())


def _gpu(config: dict[str, Any], accelerators: list[dict[str, Any]], device: str) -> list[Provider]:
    chosen: list[Provider] = []
    cuda: dict[str, str] = {}
    for accelerator in accelerators:
        given: dict[str, str] = accelerator.get("parameters") or {}
        if accelerator["name"] == "tensorrt":
            chosen.append((TENSORRT, {"device_id": device, **_tensorrt(given)}))
        elif accelerator["name"] == "cuda":
            cuda.update(given)
        else:
            raise _unknown(accelerator["name"])
    cuda.update(_deprecated(config))
    chosen.append((CUDA, {**cuda, "device_id": device}))
    return chosen


def _tensorrt(given: dict[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in given.items():
        if key == "precision_mode":
            if value in _PRECISION:
                options[_PRECISION[value]] = "1"
            elif value != "FP32":
                raise Refused(f"unsupported precision mode '{value}' is requested")
        elif key in _RENAMED:
            options[_RENAMED[key]] = value
        elif key in _TENSORRT_KEYS:
            options[key] = value
        else:
            raise Refused(f"unknown parameter '{key}' is provided for TensorRT Execution Accelerator")
    return {key: _flag(value) if key.endswith("_enable") else value for key, value in options.items()}


def _flag(value: str) -> str:
    """ONNX Runtime in Python takes True and False where the C++ backend takes 0 and 1 as well."""
    return "True" if to_bool(value) else "False"


def _deprecated(config: dict[str, Any]) -> dict[str, str]:
    """Four CUDA settings that the C++ backend reads from ``parameters``, over those of the accelerator."""
    search = to_int(parameter(config, "cudnn_conv_algo_search") or "0")
    if search not in _CONV_SEARCH:
        raise Refused(f"unsupported cudnn_conv_algo_search value '{search}' is requested")
    strategy = to_int(parameter(config, "arena_extend_strategy") or "0")
    if strategy not in _ARENA:
        raise Refused(f"unsupported arena_extend_strategy value '{strategy}' is requested")
    options = {"cudnn_conv_algo_search": _CONV_SEARCH[search], "arena_extend_strategy": _ARENA[strategy]}
    for key in ("gpu_mem_limit", "do_copy_in_default_stream"):
        value = parameter(config, key)
        if value is not None:
            options[key] = value
    return options


def _unknown(name: str) -> Refused:
    return Refused(f"unknown Execution Accelerator '{name}' is requested")
