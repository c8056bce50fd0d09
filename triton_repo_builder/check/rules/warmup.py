"""Warm-up samples: they run at load, so a wrong one refuses the model, or kills the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.dtypes import BY_CONFIG


def check(context: ModelContext) -> Iterator[Finding]:
    """Each sample of ``model_warmup`` that would run."""
    if context.ensemble:
        return  # ensembles.py refuses the field as a whole
    for index, sample in enumerate(context.messages("model_warmup")):
        size = sample.get("batch_size", 0)
        if size > max(context.max_batch_size, 1):
            message = (
                f"batch size {size}, max allowed is {max(context.max_batch_size, 1)}: "
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
        elif declared:
            message = f"the sample names input '{name}', which model '{context.name}' does not have"
            yield context.finding("warmup-inputs", message, *path)
    missing = [name for name, item in declared.items() if name not in inputs and not item.get("optional")]
    if missing:
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
    if not value.get("zero_data") and not value.get("random_data") and "input_data_file" not in value:
        message = f"warmup setting expects input '{name}' to have input_data_type set"
        yield context.finding("warmup-data", message, *path)
    if "input_data_file" not in value:
        return
    file = context.model.path / "warmup" / value["input_data_file"]
    if not file.is_file():
        message = f"failed to open text file for read {file}: No such file or directory"
        yield context.finding("warmup-file", message, *path)
        return
    dtype = BY_CONFIG.get(value.get("data_type", ""))
    bytes_wanted = prod(value.get("dims", [])) * dtype.size if dtype else 0
    if file.stat().st_size < bytes_wanted:
        message = (
            f"warmup setting expects {bytes_wanted} bytes, but the data provided from "
            f"{value['input_data_file']} only has {file.stat().st_size} bytes"
        )
        yield context.finding("warmup-file", message, *path)


def _against(
    context: ModelContext, index: int, name: str, value: Mapping[str, Any], item: Mapping[str, Any]
) -> Iterator[Finding]:
    """The sample against the declared input; the batch axis is added by the server."""
    dims, expected = list(value.get("dims", [])), list(item.get("dims", []))
    same = len(dims) == len(expected) and all(w in (-1, d) for d, w in zip(dims, expected, strict=True))
    if expected and not same and not any(dim < 0 for dim in dims):
        batch = [-1] if context.max_batch_size > 0 else []
        batch_of_one = [1] if context.max_batch_size > 0 else []
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


def _wire(tensor: Mapping[str, Any]) -> str:
    dtype = BY_CONFIG.get(tensor.get("data_type", ""))
    return dtype.wire if dtype else "<invalid>"


def _list(dims: list[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
