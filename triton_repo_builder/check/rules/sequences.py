"""``sequence_batching``: its controls and its implicit states, as the core reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from triton_repo_builder.base.dtypes import BY_CONFIG
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding

FIELD = "sequence_batching"
INITIAL_STATE = "initial_state"
"""The folder of a model with the files of its initial states."""
_BOOLEAN = ("CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY")
_CORRELATION = "CONTROL_SEQUENCE_CORRID"
_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_IDS = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
LARGEST_STATE = 2**40
"""Limit in bytes. The server allocates all of it at once, and crashes if that fails."""


def check(context: ModelContext) -> Iterator[Finding]:
    """Settings that ``ValidateModelConfig`` and ``SequenceBatchScheduler::Create`` refuse."""
    sequence = context.config.raw.get(FIELD)
    if sequence is None or context.ensemble:
        return
    yield from _controls(context, sequence)
    low = sequence.get("direct", {}).get("minimum_slot_utilization", 0)
    if low < 0 or low > 1:  # The server compares so, and takes nan.
        message = f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {context.name}"
        yield context.finding("sequence-slot", message, FIELD, "direct", "minimum_slot_utilization")
    yield from _states(context, sequence)


def _controls(context: ModelContext, sequence: Mapping[str, Any]) -> Iterator[Finding]:
    """GetBooleanSequenceControlProperties and GetTypedSequenceControlProperties."""
    names: set[str] = set()
    kinds: set[str] = set()
    for index, item in enumerate(sequence.get("control_input", [])):
        name, path = str(item.get("name", "")), (FIELD, "control_input", index)
        if not name:
            message = f"sequence batching control tensor must have a name for {context.name}"
            yield context.finding("sequence-control", message, *path)
        elif name in names:
            message = (
                f"sequence batching control tensor '{name}' is specified for multiple control kinds for "
                f"{context.name}"
            )
            yield context.finding("sequence-control", message, *path, "name")
        names.add(name)
        for control in item.get("control", []):
            kind = control.get("kind", _BOOLEAN[0])
            if kind in kinds:
                message = f"sequence batching specifies multiple {kind} tensors for {context.name}"
                yield context.finding("sequence-control", message, *path, "control")
            kinds.add(kind)
            message = _correlation(context, control) if kind == _CORRELATION else _boolean(context, control)
            if message:
                yield context.finding("sequence-control", message, *path, "control")


def _boolean(context: ModelContext, control: Mapping[str, Any]) -> str:
    kind = control.get("kind", _BOOLEAN[0])
    fields = [field for field in _VALUES if control.get(field)]
    if not fields:
        return (
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
            f"'bool_false_true' for {kind} for {context.name}"
        )
    if len(fields) > 1:
        return (
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            f"'bool_false_true' for {kind} for {context.name}"
        )
    if len(control[fields[0]]) != 2:
        return (
            f"sequence batching control '{fields[0]}' must have exactly 2 entries for {kind} for "
            f"{context.name}"
        )
    return ""


def _correlation(context: ModelContext, control: Mapping[str, Any]) -> str:
    if any(control.get(field) for field in _VALUES):
        return (
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
            f"'bool_false_true' for {_CORRELATION} for {context.name}"
        )
    if control.get("data_type") not in _IDS:
        return (
            f"unexpected data type for control {_CORRELATION} for {context.name}. Allowed data types are "
            f"{', '.join(_IDS[:-1])} and {_IDS[-1]}"
        )
    return ""


def _states(context: ModelContext, sequence: Mapping[str, Any]) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, state in enumerate(sequence.get("state", [])):
        name = str(state.get("input_name", ""))
        initial = state.get("initial_state", [])
        message = ""
        if len(initial) > 1:
            message = (
                f"initial_state field for state input '{name}' must contain exactly one or zero element. "
                f"Found '{len(initial)}' elements."
            )
        elif initial:
            message = _initial(context, state, initial[0], repeated=name in seen)
            seen.add(name)
        if message:
            yield context.finding("sequence-state", message, FIELD, "state", index, "initial_state")


def _initial(
    context: ModelContext, state: Mapping[str, Any], initial: Mapping[str, Any], *, repeated: bool
) -> str:
    """GenerateInitialStateData, in its order."""
    name = str(state.get("input_name", ""))
    dims, expected = list(initial.get("dims", [])), list(state.get("dims", []))
    pairs = zip(dims, expected, strict=False)
    if initial.get("data_type") != state.get("data_type"):
        return (
            f"The data type used for 'initial_state' field of state '{name}' does not match the state data "
            "type."
        )
    if not initial.get("name"):
        return f"Field 'name' must be set when using initial_state for state input '{name}'."
    if repeated:
        return f"State input name '{name}' specified more than once."
    if len(dims) != len(expected):
        return (
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state "
            f"input '{name}'. {len(dims)} != {len(expected)}"
        )
    if -1 in dims:
        return f"'initial_state' field for state input name '{name}' contains variable dimensions."
    if other := next((pair for pair in pairs if pair[1] not in (-1, pair[0])), None):
        return (
            f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. "
            f"{other[0]} != {other[1]}"
        )
    return _data(context, name, initial, dims)


def _data(context: ModelContext, name: str, initial: Mapping[str, Any], dims: list[int]) -> str:
    dtype = BY_CONFIG.get(str(initial.get("data_type", "")))
    size = (dtype.size if dtype else 0) or 4
    needed = prod(dims) * size if dims else 0
    if any(dim < 0 for dim in dims) or needed > LARGEST_STATE:
        return f"the initial state of '{name}' has dims {dims}: the server dies when it asks for that memory"
    if "data_file" not in initial:
        return "" if "zero_data" in initial else _no_data(name)
    file = context.join(INITIAL_STATE, str(initial["data_file"]))
    if file.is_dir():
        return f"{file} is a folder: the server dies when it reads it as a file"
    if not file.exists():
        return f"failed to open text file for read {file}: No such file or directory"
    length = file.stat().st_size
    # A pipe is reported for the whole repository.
    if initial.get("data_type") == "TYPE_STRING" or not file.is_file():
        return ""
    if needed > length:
        return (
            f"initial_state setting expects {needed} bytes, but the data provided from "
            f"{initial['data_file']} only has {length} bytes."
        )
    return ""


def _no_data(name: str) -> str:
    return f"initial_state setting expects state'{name}' to have state_data set"
