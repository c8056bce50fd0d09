"""``parameters`` and ``optimization`` of an ONNX model as the onnxruntime backend reads them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from triton_repo_builder.base import releases
from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Severity
from triton_repo_builder.check.rules.backend_parameters import BOOLEANS
from triton_repo_builder.repository.pbtxt_document import Key

KNOWN = frozenset(
    [
        "intra_op_thread_count",
        "inter_op_thread_count",
        "execution_mode",
        "enable_mem_arena",
        "enable_mem_pattern",
        "memory.enable_memory_arena_shrinkage",
        "cudnn_conv_algo_search",
        "gpu_mem_limit",
        "arena_extend_strategy",
        "do_copy_in_default_stream",
        "session.use_device_allocator_for_initializers",
    ]
)
_ORT = {
    "intra_op_num_threads": "intra_op_thread_count",
    "inter_op_num_threads": "inter_op_thread_count",
    "num_threads": "intra_op_thread_count",
    "threads": "intra_op_thread_count",
    "enable_cpu_mem_arena": "enable_mem_arena",
    "graph_optimization_level": "optimization { graph { level } }",
    "optimization_level": "optimization { graph { level } }",
}
"""Settings of the backend, by ONNX Runtime's names for them."""
TENSORRT = frozenset(
    [
        "precision_mode",
        "max_workspace_size_bytes",
        "trt_max_partition_iterations",
        "trt_min_subgraph_size",
        "int8_calibration_table_name",
        "int8_use_native_calibration_table",
        "trt_dla_enable",
        "trt_dla_core",
        "trt_engine_cache_enable",
        "trt_engine_cache_path",
        "trt_engine_cache_prefix",
        "trt_dump_subgraphs",
        "trt_force_sequential_engine_build",
        "trt_context_memory_sharing_enable",
        "trt_layer_norm_fp32_fallback",
        "trt_timing_cache_enable",
        "trt_timing_cache_path",
        "trt_force_timing_cache",
        "trt_detailed_build_log",
        "trt_build_heuristics_enable",
        "trt_sparsity_enable",
        "trt_builder_optimization_level",
        "trt_auxiliary_streams",
        "trt_tactic_sources",
        "trt_extra_plugin_lib_paths",
        "trt_profile_min_shapes",
        "trt_profile_max_shapes",
        "trt_profile_opt_shapes",
        "trt_cuda_graph_enable",
        "trt_dump_ep_context_model",
        "trt_ep_context_file_path",
        "trt_ep_context_embed_mode",
    ]
)
_NUMBERS = ("intra_op_thread_count", "inter_op_thread_count", "execution_mode")
_BOOLEANS = ("enable_mem_arena", "enable_mem_pattern")


def check(context: ModelContext) -> Iterator[Finding]:
    """All checks of these fields.

    Parameters whose text the backend converts; it reads ``2x`` as 2 and ignores what it does not know.
    """
    parameters = context.config.parameters
    for key in _NUMBERS:
        value = parameters.get(key, "0")
        message = ""
        number = re.match(r"\s*[-+]?\d+", value)
        if not number:
            message = f"failed to convert '{value}' to integral number"
        elif not -(2**31) <= int(number[0]) < 2**31:
            message = f"the server dies of {key} = '{value}', which is no 32-bit integer"
        elif key == "execution_mode" and value not in ("0", "1"):
            message = (
                f"Invalid configuration value provided. Expected values for  {key} are 0 or 1 but got "
                f"{value} ."
            )
        if message:
            yield context.finding(
                "onnx-option", message, "parameters", Key(key), remedy=f"a whole number for {key}"
            )
    for key in _BOOLEANS:
        if parameters.get(key, "0").lower() not in BOOLEANS:
            message = f"failed to convert '{parameters[key]}' to boolean"
            yield context.finding("onnx-option", message, "parameters", Key(key), remedy=f"0 or 1 for {key}")
    shrinkage = parameters.get("memory.enable_memory_arena_shrinkage")
    if shrinkage and parameters.get("enable_mem_arena", "1").lower() in ("0", "false"):
        message = "memory.enable_memory_arena_shrinkage without the arena: every request fails"
        yield context.finding("onnx-option", message, "parameters", remedy="drop one of the two")
    yield from _ignored(context)
    yield from _accelerators(context)


def _ignored(context: ModelContext) -> Iterator[Finding]:
    """Parameters that resemble one of the backend's: it ignores them silently."""
    for key in context.config.parameters:
        if key in KNOWN:
            continue
        near = _ORT.get(key) or next(iter(difflib.get_close_matches(key.lower(), sorted(KNOWN), 1, 0.85)), "")
        if near:
            message = f"the onnxruntime backend does not know the parameter {key}, and ignores it"
            yield context.finding(
                "parameter-ignored", message, "parameters", Key(key), remedy=f"did you mean {near}?"
            )


def _accelerators(context: ModelContext) -> Iterator[Finding]:
    accelerators = context.config.raw.get("optimization", {}).get("execution_accelerators", {})
    kinds = {group.get("kind", "KIND_AUTO") for group in context.messages("instance_group")} or {"KIND_AUTO"}
    for role, names in (("cpu", ("openvino",)), ("gpu", ("cuda", "tensorrt"))):
        field = f"{role}_execution_accelerator"
        path = ("optimization", "execution_accelerators", field)
        if role == "gpu" and not kinds & {"KIND_GPU", "KIND_AUTO"}:
            continue  # Read for instances on a GPU only.
        # Without a GPU the server takes KIND_AUTO for the CPU and reads none of these.
        severity: Severity = "error" if role == "cpu" or "KIND_GPU" in kinds else "warning"
        for index, item in enumerate(accelerators.get(field, [])):
            name = str(item.get("name", ""))
            near = difflib.get_close_matches(name.lower(), names, 1)
            remedy = (
                f"did you mean {near[0]}?" if near else f"{role.upper()} accelerators: {', '.join(names)}"
            )
            bf16 = "ort_tensorrt_bf16" in context.release.features
            unknown = [(f"unknown Execution Accelerator '{name}' is requested", remedy)] * (name not in names)
            where = context.at(*path, index, "name")
            for message, remedy in (
                _tensorrt(item.get("parameters", {}), bf16=bf16) if name == "tensorrt" else unknown
            ):
                yield report("onnx-accelerator", where, message, remedy=remedy, severity=severity)


def _tensorrt(parameters: Mapping[str, Any], *, bf16: bool) -> Iterator[tuple[str, str]]:
    for key, value in parameters.items():
        if key not in TENSORRT:
            near = difflib.get_close_matches(key, sorted(TENSORRT), 1)
            message = f"unknown parameter '{key}' is provided for TensorRT Execution Accelerator"
            yield message, f"did you mean {near[0]}?" if near else "drop it"
        modes = ("FP32", "FP16", "BF16", "INT8") if bf16 else ("FP32", "FP16", "INT8")
        if key == "precision_mode" and value not in modes:
            later = f"; BF16 from {releases.first_with('ort_tensorrt_bf16')} on" if value == "BF16" else ""
            remedy = f"{', '.join(modes[:-1])} or {modes[-1]}{later}"
            yield f"unsupported precision mode '{value}' is requested", remedy
