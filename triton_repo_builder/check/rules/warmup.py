"""Warm-up samples: they run at load, so a wrong one refuses the model, or kills the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.dtypes import BY_CONFIG
from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Severity

LARGEST = 2**36
"""Limit in bytes for one input: 64 GiB, more than the memory of most machines."""
_STRINGS = "write 4 bytes with each string's length, little-endian, before its bytes"


def check(context: ModelContext) -> Iterator[Finding]:
    """Each sample of ``model_warmup`` that would run."""
    if context.ensemble:
        return  # ensembles.py refuses the field as a whole
    for index, sample in enumerate(context.messages("model_warmup")):
        size = sample.get("batch_size", 0)
        if context.rows is not None and size > max(context.rows, 1):
            message = (
                f"batch size {size}, max allowed is {max(context.rows, 1)}: "
                "this often takes the whole server down"
            )
            yield context.finding("warmup-batch-size", message, "model_warmup", index, "batch_size")
        if size:  # A batch_size of 0 skips the sample.
            yield from _inputs(context, index, sample.get("inputs", {}))


def _inputs(context: ModelContext, index: int, inputs: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    declared = {str(item.get("name", "")): item for item in context.messages("input")}
    path = ("model_warmup", index, "inputs")
    for name, value in inputs.items():
        yield from _data(context, index, name, value)
        if name in declared:
            yield from _against(context, index, name, value, declared[name])
        elif declared and name not in _controls(context) and not context.completes:
            message = f"the sample names input '{name}', which model '{context.name}' does not have"
            # A Python model gets it, and need not look.
            severity: Severity = "warning" if context.backend == "python" else "error"
            yield report("warmup-inputs", context.at(*path), message, severity=severity)
    missing = [name for name, item in declared.items() if name not in inputs and not item.get("optional")]
    if missing and not context.completes:
        sent = sum(name in declared for name in inputs)
        message = f"expected {len(declared)} inputs but got {sent} inputs for model '{context.name}'"
        yield context.finding(
            "warmup-inputs", message, *path, remedy=f"give it a value for {', '.join(missing)}"
        )


def _data(context: ModelContext, index: int, name: str, value: Mapping[str, Any]) -> Iterator[Finding]:
    path = ("model_warmup", index, "inputs")
    if any(dim < 0 for dim in value.get("dims", [])):
        message = f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
        yield context.finding("warmup-shape", message, *path)
    size = prod(value.get("dims", [])) * _size(value)
    if size > LARGEST:
        message = f"the sample of input '{name}' has {size} bytes, and the server dies when it asks for them"
        yield context.finding("warmup-shape", message, *path, remedy="write the dims of a usual request")
    if not {"zero_data", "random_data", "input_data_file"} & {*value}:
        message = f"warmup setting expects input '{name}' to have input_data_type set"
        yield context.finding("warmup-data", message, *path)
    if "input_data_file" not in value:
        return
    file = context.join("warmup", str(value["input_data_file"]))
    if file.is_dir():
        message = f"{file} is a folder: the server dies when it reads it as a file"
        yield context.finding("warmup-file", message, *path)
        return
    if not file.exists():
        message = f"failed to open text file for read {file}: No such file or directory"
        yield context.finding("warmup-file", message, *path)
        return
    if not file.is_file():
        return  # A pipe is reported for the whole repository.
    bytes_wanted = prod(value.get("dims", [])) * _size(value)
    if file.stat().st_size < bytes_wanted:
        message = (
            f"warmup setting expects {bytes_wanted} bytes, but the data provided from "
            f"{value['input_data_file']} only has {file.stat().st_size} bytes"
        )
        yield context.finding("warmup-file", message, *path)
    elif value.get("data_type") == "TYPE_STRING" and (message := _strings(context, file, name, value)):
        yield context.finding("warmup-file", message, *path, remedy=_STRINGS)


def _strings(context: ModelContext, file: Path, name: str, value: Mapping[str, Any]) -> str:
    """Strings in a file are each preceded by their length; only Python models are known to look."""
    content, at, count = files.read(file), 0, 0
    while at + 4 <= len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "little")
        count += 1
    elements = prod(value.get("dims", []))
    if at != len(content):
        return f"'{file.name}' for input '{name}' does not hold strings with their lengths before them"
    whose = f"for inference input '{name}' for model '{context.name}'"
    if count < elements:
        return f"expected {elements} string elements {whose}, got {count}"
    return (
        f"unexpected number of string elements {count} {whose}, expecting {elements}"
        if count > elements
        else ""
    )


def _controls(context: ModelContext) -> set[str]:
    """Tensors that a sample may name though no request does: controls, states, batch inputs."""
    sequence = context.config.raw.get("sequence_batching", {})
    names = {str(item.get("name", "")) for item in sequence.get("control_input", [])}
    names |= {str(item.get("input_name", "")) for item in sequence.get("state", [])}
    return names | {
        str(name) for item in context.messages("batch_input") for name in item.get("target_name", [])
    }


def _against(
    context: ModelContext, index: int, name: str, value: Mapping[str, Any], item: Mapping[str, Any]
) -> Iterator[Finding]:
    """The sample against the declared input; the batch axis is added by the server."""
    dims, expected = list(value.get("dims", [])), list(item.get("dims", []))
    rows_known = context.rows is not None
    same = len(dims) == len(expected) and all(w in (-1, d) for d, w in zip(dims, expected, strict=True))
    if rows_known and expected and not same and not any(dim < 0 for dim in dims):
        batch = [-1] if context.rows else []
        batch_of_one = [1] if context.rows else []
        message = (
            f"unexpected shape for input '{name}' for model '{context.name}'. "
            f"Expected {_list(batch + expected)}, got {_list(batch_of_one + dims)}"
        )
        yield context.finding("warmup-shape", message, "model_warmup", index, "inputs")
    sent, declared = _wire(value), _wire(item)
    if sent != declared:
        message = (
            f"inference input '{name}' data-type is '{sent}', but model '{context.name}' expects '{declared}'"
        )
        yield context.finding("warmup-type", message, "model_warmup", index, "inputs")


def _size(tensor: Mapping[str, Any]) -> int:
    dtype = BY_CONFIG.get(tensor.get("data_type", ""))
    return dtype.size if dtype else 0


def _wire(tensor: Mapping[str, Any]) -> str:
    dtype = BY_CONFIG.get(tensor.get("data_type", ""))
    return dtype.wire if dtype else "<invalid>"


def _list(dims: list[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
