"""``parameters`` of TensorRT, OpenVINO and PyTorch models as their backends read them.

From ``ParseParameters`` of tensorrt_backend, openvino_backend and pytorch_backend (branches r24.04
to r26.07), https://github.com/triton-inference-server.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository.pbtxt_document import Key

BOOLEANS = ("0", "1", "false", "off", "on", "true")
"""Values that the backend library's ``ParseBoolValue`` takes, in upper or lower case."""
_STOI = r"\s*[-+]?\d.*"
"""Numbers that C++'s ``stoi`` takes: it stops at the first character that is not a digit."""
_DIGITS = r"\d*"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter that a backend reads, and the values that it takes."""

    values: tuple[str, ...] = ()
    """Accepted texts, in any case unless ``exact``; empty for any text."""
    number: str = ""
    """A pattern of the numbers that it takes, too."""
    exact: bool = False
    silent: bool = False
    """Whether the backend ignores any other value."""
    since: str = ""
    words: str = ""
    """The backend's message for any other value."""


_BOOLEAN = Parameter(values=BOOLEANS, words="failed to convert '{value}' to boolean")
_COUNT = Parameter(number=_STOI, since="24.05", words="failed to convert '{value}' to integral number")
_FLAG = Parameter(values=("YES", "NO"), silent=True)
_EXPECTED = "expected the parameter '{key}' to be {expected}, got {lower}"
_THREADS = Parameter(number=_DIGITS, words=_EXPECTED.replace("{expected}", "a non-negative number"))
_STRATEGY = (
    "Invalid value for '{key}': '{value}' for model instance '{model}'. "
    "Supported values are 'STATIC' and 'ON_PROFILE_CHANGE'."
)
PARAMETERS: dict[str, dict[str, Parameter]] = {
    "tensorrt": {
        "execution_context_allocation_strategy": Parameter(
            values=("STATIC", "ON_PROFILE_CHANGE"), exact=True, since="25.05", words=_STRATEGY
        ),
        "enable_multi_device": Parameter(since="26.06"),
        "multi_device_gpus": Parameter(since="26.06"),
        "multi_device_per_rank_engines": Parameter(since="26.06"),
    },
    "openvino": {
        "CPU_EXTENSION_PATH": Parameter(),
        "SKIP_OV_DYNAMIC_BATCHSIZE": _FLAG,
        "ENABLE_BATCH_PADDING": _FLAG,
        "RESHAPE_IO_LAYERS": _FLAG,
        "TARGET_DEVICE": Parameter(since="25.10"),
        "INFERENCE_NUM_THREADS": _THREADS,
        "COMPILATION_NUM_THREADS": _THREADS,
        "HINT_BF16": Parameter(values=("YES",), words=_EXPECTED.replace("{expected}", "YES")),
        "NUM_STREAMS": Parameter(
            values=("AUTO", "NUMA"),
            number=_DIGITS,
            words=_EXPECTED.replace("{expected}", "either AUTO/NUMA/<int_value>"),
        ),
        "PERFORMANCE_HINT": Parameter(
            values=("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"),
            words=_EXPECTED.replace("{expected}", "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT"),
        ),
    },
    "pytorch": {
        "DISABLE_OPTIMIZED_EXECUTION": _BOOLEAN,
        "INFERENCE_MODE": _BOOLEAN,
        "DISABLE_CUDNN": Parameter(values=BOOLEANS, since="24.06", words=_BOOLEAN.words),
        "ENABLE_CACHE_CLEANING": _BOOLEAN,
        "ENABLE_JIT_EXECUTOR": _BOOLEAN,
        "ENABLE_JIT_PROFILING": _BOOLEAN,
        "ENABLE_TENSOR_FUSER": _BOOLEAN,
        "ENABLE_WEIGHT_SHARING": _BOOLEAN,
        "INTER_OP_THREAD_COUNT": _COUNT,
        "INTRA_OP_THREAD_COUNT": _COUNT,
    },
}
_MEANT = {
    ("openvino", "CPU_THREADS_NUM"): "INFERENCE_NUM_THREADS",
    ("openvino", "CPU_THROUGHPUT_STREAMS"): "NUM_STREAMS",
    ("openvino", "ENFORCE_BF16"): "HINT_BF16",
    ("pytorch", "INTER_OP_NUM_THREADS"): "INTER_OP_THREAD_COUNT",
    ("pytorch", "INTRA_OP_NUM_THREADS"): "INTRA_OP_THREAD_COUNT",
}
"""Older names and names of other programs, in capitals."""
_OF_THE_SERVER = ("coalesce-request-input", "execution-policy", "plugins", "version-compatible")
"""Options of the TensorRT backend on the server's command line."""


def check(context: ModelContext) -> Iterator[Finding]:
    """The parameters of one model; PyTorch models in Python (``runtime: "model.py"``) have others."""
    parameters = PARAMETERS.get(context.backend, {})
    if not parameters or context.config.raw.get("runtime") == "model.py":
        return
    for key, value in context.config.parameters.items():
        place = ("parameters", Key(key))
        if key not in parameters:
            if remedy := _remedy(context.backend, key):
                message = f"the {context.backend} backend does not know the parameter {key}, and ignores it"
                yield context.finding("parameter-ignored", message, *place, remedy=remedy)
        elif context.release.name < parameters[key].since:
            message = f"release {context.release.name} ignores {key}"
            remedy = f"it takes effect from {parameters[key].since} on"
            yield context.finding("parameter-ignored", message, *place, remedy=remedy)
        elif not _takes(parameters[key], value):
            values = ("true", "false") if parameters[key].values == BOOLEANS else parameters[key].values
            remedy = f"write {' or '.join([*values, *['a whole number'] * bool(parameters[key].number)])}"
            if parameters[key].silent:
                message = f"the {context.backend} backend ignores {key} unless it is YES: it is '{value}'"
                yield context.finding("parameter-ignored", message, *place, remedy=remedy)
            else:
                words = parameters[key].words.format(
                    key=key, value=value, lower=value.lower(), model=context.name
                )
                yield context.finding("backend-option", words, *place, remedy=remedy)


def _takes(parameter: Parameter, value: str) -> bool:
    if parameter.number and re.fullmatch(parameter.number, value, re.DOTALL | re.ASCII):
        return True
    folded = value if parameter.exact else value.casefold()
    values = parameter.values if parameter.exact else [each.casefold() for each in parameter.values]
    return folded in values or not (parameter.values or parameter.number)


def _remedy(backend: str, key: str) -> str:
    """Remedy for a parameter that no backend reads: the parameter most like it; empty if none is."""
    if backend == "tensorrt" and key in _OF_THE_SERVER:
        return f"it is an option of the server: tritonserver --backend-config=tensorrt,{key}=…"
    by_capitals = {name.upper(): name for name in PARAMETERS[backend]}
    near = difflib.get_close_matches(key.upper(), sorted(by_capitals), 1, 0.85)
    name = _MEANT.get((backend, key.upper()), by_capitals.get(near[0] if near else "", ""))
    return f"did you mean {name}?" if name else ""
