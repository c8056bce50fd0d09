"""The ``parameters`` and ``optimization.graph`` of a config.pbtxt as ONNX Runtime's session options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import Refused
else:
    from ort_errors import Refused

_INTEGER = re.compile(r"\s*[+-]?\d+")
_BOOLEANS = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}
_SHRINK = "memory.enable_memory_arena_shrinkage"
_DEVICE_INITIALIZERS = "session.use_device_allocator_for_initializers"


def parameter(config: dict[str, Any], key: str) -> str | None:
    """The string value of a parameter, or None where it is not given."""
    value = (config.get("parameters") or {}).get(key)
    return None if value is None else str(value.get("string_value", ""))


def to_int(text: str) -> int:
    """As C++ ``std::stoi``: leading blanks and trailing rubbish are accepted."""
    found = _INTEGER.match(text)
    if not found or abs(int(found[0])) >= 2**31:
        raise Refused(f"failed to convert '{text}' to integral number")
    return int(found[0])


def to_bool(text: str) -> bool:
    """0, 1, true or false in any case."""
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise Refused(f"failed to convert '{text}' to boolean") from None


def session_options(config: dict[str, Any]) -> ort.SessionOptions:
    """What the C++ backend would set, from the same keys."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = _graph_level(config)
    threads = parameter(config, "intra_op_thread_count")
    if threads is not None and to_int(threads) > 0:
        options.intra_op_num_threads = to_int(threads)
    threads = parameter(config, "inter_op_thread_count")
    if threads is not None and to_int(threads) > 0:
        options.inter_op_num_threads = to_int(threads)
    mode = parameter(config, "execution_mode")
    if mode is not None:
        options.execution_mode = _execution_mode(to_int(mode))
    arena = parameter(config, "enable_mem_arena")
    if arena is not None:
        options.enable_cpu_mem_arena = to_bool(arena)
    pattern = parameter(config, "enable_mem_pattern")
    if pattern is not None:
        options.enable_mem_pattern = to_bool(pattern)
    initializers = parameter(config, _DEVICE_INITIALIZERS)
    if initializers is not None:
        options.add_session_config_entry(_DEVICE_INITIALIZERS, initializers)
    return options


def run_options(config: dict[str, Any]) -> ort.RunOptions | None:
    """The options of each run, or None where there are none: passing none is cheaper."""
    shrink = parameter(config, _SHRINK)
    if shrink is None:
        return None
    options = ort.RunOptions()
    options.log_severity_level = 4
    options.add_run_config_entry(_SHRINK, shrink)
    return options


def _graph_level(config: dict[str, Any]) -> ort.GraphOptimizationLevel:
    levels = {
        -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    }
    graph = (config.get("optimization") or {}).get("graph") or {}
    return levels.get(int(graph.get("level", 0)), ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def _execution_mode(mode: int) -> ort.ExecutionMode:
    modes = {0: ort.ExecutionMode.ORT_SEQUENTIAL, 1: ort.ExecutionMode.ORT_PARALLEL}
    if mode not in modes:
        raise Refused(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 "
            f"but got {mode} ."
        )
    return modes[mode]
