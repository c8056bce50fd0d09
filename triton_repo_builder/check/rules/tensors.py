"""Inputs and outputs by the rules of the core, for any backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding, Severity


def check(context: ModelContext) -> Iterator[Finding]:
    """Each declared input and output, and the batch_input and batch_output entries."""
    for role in ("input", "output"):
        items = context.messages(role)
        for index, item in enumerate(items):
            yield from _tensor(context, role, index, item)
        names = [str(item.get("name", "")) for item in items]
        last_of = {name: index for index, name in enumerate(names)}
        for name, count in Counter(names).items():
            if name and count > 1:
                last = last_of[name]
                yield _twice(context, role, last, name, count)
    yield from _batch_inputs(context)
    yield from _batch_outputs(context)
    yield from _ragged(context)


def _tensor(context: ModelContext, role: str, index: int, item: Mapping[str, Any]) -> Iterator[Finding]:
    name, whose = str(item.get("name", "")), f"for {context.name}"
    who = f"model {role} '{name}'" if name else f"model {role}"
    absent = [
        field for field in ("name", "data_type", "dims") if item.get(field) in (None, "", [], "TYPE_INVALID")
    ]
    for field in [] if context.completes else absent:
        owner = f"model {role}" if field == "name" else who
        yield context.finding("tensor-incomplete", f"{owner} must specify '{field}' {whose}", role, index)
    if any(dim == 0 or dim < -1 for dim in item.get("dims", [])):
        message = f"{who} dimension must be integer >= 1, or -1 to indicate a variable-size dimension {whose}"
        yield context.finding("tensor-dims", message, role, index, "dims")
    elif "reshape" in item and item.get("dims"):
        yield from _reshape(context, role, index, item)
    if item.get("format", "FORMAT_NONE") != "FORMAT_NONE" and len(item.get("dims", [])) != 3:
        yield context.finding(
            "tensor-format", f"model {role} NHWC/NCHW require 3 dims {whose}", role, index, "format"
        )
    if item.get("is_non_linear_format_io"):
        message = ""
        if context.backend != "tensorrt":
            message = f"Non-linear IO format is only supported for the TensorRT platform {whose}"
        elif len(item.get("dims", [])) != 3:
            message = f"Non-linear IO format {role} requires 3 dims {whose}"
        if message:
            yield context.finding("tensor-non-linear", message, role, index, "is_non_linear_format_io")
    if item.get("is_shape_tensor") and context.backend != "tensorrt":
        message = f"shape tensors are only supported for TensorRT platform {whose}"
        yield context.finding("tensor-shape-tensor", message, role, index, "is_shape_tensor")


def _twice(context: ModelContext, role: str, index: int, name: str, count: int) -> Finding:
    """The server loads the model; it counts the inputs of a request, and not its outputs."""
    message = f"{role} '{name}' is declared {count} times; the server does not notice"
    required = [item for item in context.messages("input") if not item.get("optional")]
    if role == "input" and sum(item.get("name") == name for item in required) > 1:
        names = len({str(item.get("name", "")) for item in required})
        message += f" and fails every request: expected {len(required)} inputs but got {names}"
        return context.finding("tensor-duplicate", message, role, index, "name")
    remedy = "declare each tensor once"
    return context.finding(
        "tensor-duplicate", message, role, index, "name", remedy=remedy, severity="warning"
    )


def _reshape(context: ModelContext, role: str, index: int, item: Mapping[str, Any]) -> Iterator[Finding]:
    """ValidateIOShape of core's model_config_utils.cc."""
    who, whose = f"model {role} '{item.get('name', '')}'", f"for {context.name}"
    dims, shape = list(item["dims"]), list(item["reshape"].get("shape", []))
    message, remedy = "", ""
    if not shape and context.rows == 0:
        remedy = "drop reshape, or set max_batch_size: only a model that batches takes a scalar for each row"
        message = (
            f"{who} cannot have empty reshape for non-batching model as scalar tensors are not supported "
            f"{whose}"
        )
    elif any(dim == 0 or dim < -1 for dim in shape):
        message = (
            f"{who} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension "
            f"{whose}"
        )
    elif dims.count(-1) != shape.count(-1) and -1 in dims and -1 in shape:
        message = f"{who} has different number of variable-size dimensions for dims and reshape {whose}"
    elif _runs(dims) != _runs(shape):
        message = f"{who} has different size for dims and reshape {whose}"
    if message:
        yield context.finding("tensor-reshape", message, role, index, "reshape", remedy=remedy)


def _runs(dims: Sequence[int]) -> list[int]:
    """The sizes between the variable dimensions, which a reshape must keep one by one."""
    runs: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            runs.append([])
        else:
            runs[-1].append(dim)
    return [prod(run) for run in runs]


def _batch_inputs(context: ModelContext) -> Iterator[Finding]:
    inputs = {str(item.get("name", "")) for item in context.messages("input")}
    for index, item in enumerate(context.messages("batch_input")):
        kind = item.get("kind", "BATCH_ELEMENT_COUNT")
        yield from _kind(context, "batch-input", "batch_input", index, item)
        sources = item.get("source_input", [])
        if len(sources) != 1:
            message = (
                f"batch input kind '{kind}' expects 1 source input, got {len(sources)} for {context.name}"
            )
            yield context.finding("batch-input", message, "batch_input", index)
        if item.get("data_type") not in ("TYPE_INT32", "TYPE_FP32"):
            message = f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {context.name}"
            yield context.finding("batch-input", message, "batch_input", index, "data_type")
        for source in sources:
            if source not in inputs:
                message = f"unknown source input name '{source}' for {context.name}"
                yield context.finding("batch-input", message, "batch_input", index, "source_input")
        for target in item.get("target_name", []):
            if target in inputs:
                message = f"'{target}' is filled by batch_input and must not be listed under input"
                # A Python model gets no batch inputs at all.
                severity: Severity = "error" if context.backend == "onnxruntime" else "warning"
                where = context.at("batch_input", index, "target_name")
                yield report("batch-input", where, message, severity=severity)


def _batch_outputs(context: ModelContext) -> Iterator[Finding]:
    outputs = {str(item.get("name", "")) for item in context.messages("output")}
    inputs = {str(item.get("name", "")) for item in context.messages("input")}
    for index, item in enumerate(context.messages("batch_output")):
        yield from _kind(context, "batch-output", "batch_output", index, item)
        seen: set[str] = set()
        kind = item.get("kind", "BATCH_SCATTER_WITH_INPUT_SHAPE")
        sources = item.get("source_input", [])
        messages = []
        if len(sources) != 1:
            messages.append(
                f"batch output kind '{kind}' expects 1 source input, got {len(sources)} for {context.name}"
            )
        messages += [
            f"unknown source input name '{s}' for {context.name}" for s in sources if s not in inputs
        ]
        if not item.get("target_name"):
            messages.append(f"batch output without target_name for {context.name}: the server dies of it")
        for target in item.get("target_name", []):
            if target not in outputs:
                messages.append(f"unknown target output name '{target}' for {context.name}")
            elif target in seen:
                messages.append(
                    f"target output name '{target}' can only be specified once for {context.name}"
                )
            seen.add(target)
        for message in messages:
            yield context.finding("batch-output", message, "batch_output", index)


def _ragged(context: ModelContext) -> Iterator[Finding]:
    sources = {source for item in context.messages("batch_input") for source in item.get("source_input", [])}
    for index, item in enumerate(context.messages("input")):
        if not item.get("allow_ragged_batch") or context.backend != "onnxruntime":
            continue  # Python models get one tensor per request and see each shape.
        if context.max_batch_size == 0:
            message = f"allow_ragged_batch on '{item.get('name')}' has no effect without max_batch_size"
            yield context.finding("ragged-alone", message, "input", index, "allow_ragged_batch")
        elif not sources:
            message = (
                f"ragged input '{item.get('name')}' without batch_input: answers are cut to one row, silently"
            )
            yield context.finding("ragged-alone", message, "input", index, "allow_ragged_batch")


def _kind(
    context: ModelContext, code: str, field: str, index: int, item: Mapping[str, Any]
) -> Iterator[Finding]:
    """A number that is not a kind: the parser takes any, but a server that completes it fails on its JSON."""
    if isinstance(item.get("kind"), int):
        message = f"unknown {code.replace('-', ' ')} kind '' for {context.name}"
        remedy = "write the name of a kind"
        yield context.finding(code, message, field, index, "kind", remedy=remedy)
