"""Inputs and outputs of config.pbtxt against the graph: count, names, types; shapes in onnx_shapes.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triton_repo_builder.base.text import some
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.rules import onnx_shapes
from triton_repo_builder.check.rules.onnx_shapes import Pair
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.runtime.onnxruntime_backend import ort_rules

LISTED = 50
"""Names of the graph that a message shows."""


def check(context: ModelContext, graph: ModelSignature) -> Iterator[Finding]:
    """Everything the backend compares when it loads the model."""
    for role, specs in (("input", graph.inputs), ("output", graph.outputs)):
        for spec in specs:
            if message := ort_rules.kind(spec.name, spec.kind.upper()):
                yield context.finding("onnx-kind", message, role)
    inputs, outputs = context.messages("input"), context.messages("output")
    rows = context.max_batch_size
    if not inputs or not outputs:
        yield from _completed(context, graph)
        rows = rows or (ort_rules.DEFAULT_MAX_BATCH_SIZE if graph.batch.possible else 0)
    if inputs:
        yield from _count(context, graph)
        yield from _names(context, "input", graph)
    elif not context.messages("batch_input"):
        yield from _completed_count(context, graph)
    yield from _controls(context, graph, rows)
    if outputs:
        yield from _names(context, "output", graph)
    for role, items in (("input", inputs), ("output", outputs)):
        named = _specs(graph, role)
        optional = {spec.name for spec in graph.optional_inputs} if role == "input" else set()
        for index, item in enumerate(items):
            stated = named.get(str(item.get("name", "")))
            if stated is not None and stated.kind == "tensor":
                yield from _type(context, role, index, item, stated)
                if stated.name in optional and rows > 0:
                    continue  # _count refuses it with any shape.
                yield from onnx_shapes.check(Pair.of(context, graph, role, index, stated, rows))


def _specs(graph: ModelSignature, role: str) -> dict[str, TensorSpec]:
    specs = graph.outputs if role == "output" else (*graph.optional_inputs, *graph.inputs)
    return {spec.name: spec for spec in specs}


def _completed(context: ModelContext, graph: ModelSignature) -> Iterator[Finding]:
    completed = ort_rules.DEFAULT_MAX_BATCH_SIZE
    if context.messages("input") or context.messages("output"):
        if context.max_batch_size == 0 and graph.batch.possible:
            message = f"the server sets max_batch_size to {completed} before it compares the dims"
            yield context.finding("onnx-completed", message, "max_batch_size")
    elif message := ort_rules.autofill(
        context.name, batchable=graph.batch.possible, max_batch_size=context.max_batch_size
    ):
        yield context.finding("onnx-batch-axis", message, "max_batch_size")
    elif context.max_batch_size == 0 and graph.batch.possible and context.written("max_batch_size"):
        message = f"without inputs and outputs the server overwrites max_batch_size 0 with {completed}"
        yield context.finding("onnx-completed", message, "max_batch_size")


def _count(context: ModelContext, graph: ModelSignature) -> Iterator[Finding]:
    """Names are compared first: a wrong name makes the counts agree by accident."""
    names = _configured(context)
    optional = {spec.name for spec in graph.optional_inputs}
    count = len(names) - sum(bool(item.get("optional")) for item in context.messages("input"))
    if message := ort_rules.input_count(context.name, count, len(graph.inputs)):
        configured, required = set(names), {spec.name for spec in graph.inputs}
        missing = [spec.name for spec in graph.inputs if spec.name not in configured]
        marked = [
            item["name"]
            for item in context.messages("input")
            if item.get("optional") and item["name"] in required
        ]
        listed = [name for name in names if name in optional]
        hints = [f"add {some(missing)}"] if missing else []
        hints += [f"drop optional from {some(marked)}"] if marked else []
        hints += [f"drop {some(listed)}, which is an initializer"] if listed else []
        yield context.finding("onnx-input-count", message, "input", remedy="; ".join(hints))
    for index, item in enumerate(context.messages("input")):
        if item.get("optional") and item.get("name") in optional:
            message = ort_rules.optional(context.name, str(item["name"]), batching=context.max_batch_size > 0)
            if message:
                yield context.finding("onnx-optional", message, "input", index, "optional")


def _configured(context: ModelContext) -> list[str]:
    """Every name the config feeds to the graph: inputs, batch inputs, sequence controls and states."""
    names = [str(item.get("name", "")) for item in context.messages("input")]
    names += [target for item in context.messages("batch_input") for target in item.get("target_name", [])]
    return names + _of_sequences(context)


def _of_sequences(context: ModelContext) -> list[str]:
    """Controls and states: the backend counts each kind of control, even if one tensor carries several."""
    sequence = context.config.raw.get("sequence_batching", {})
    names = [
        item.get("name", "") for item in sequence.get("control_input", []) for _ in item.get("control", [])
    ]
    return names + [item.get("input_name", "") for item in sequence.get("state", [])]


def _completed_count(context: ModelContext, graph: ModelSignature) -> Iterator[Finding]:
    """The backend completes the inputs with all of the graph's, and then counts controls and states again."""
    tensors = _of_sequences(context)
    message = ort_rules.input_count(context.name, len(graph.inputs) + len(tensors), len(graph.inputs))
    if message:
        remedy = f"declare the inputs and outputs, without {some([*dict.fromkeys(tensors)])}"
        yield context.finding("onnx-input-count", message, "sequence_batching", remedy=remedy)


def _controls(context: ModelContext, graph: ModelSignature, rows: int) -> Iterator[Finding]:
    """Validate…SequenceControl of the backend: each control is an input of the graph, of one element."""
    specs = {spec.name: spec for spec in graph.inputs}
    inputs = f"the graph's inputs: {some(sorted(specs))}"
    sequence = context.config.raw.get("sequence_batching", {})
    for index, item in enumerate(sequence.get("control_input", [])):
        name, controls = str(item.get("name", "")), item.get("control", [])
        path = ("sequence_batching", "control_input", index)
        spec = specs.get(name)
        if not controls or not name:
            continue
        if spec is None:
            yield context.finding("onnx-name", ort_rules.control_name(name), *path, "name", remedy=inputs)
            continue
        if spec.shape is not None and (
            message := ort_rules.control_dims(context.name, name, spec.dims, batching=rows > 0)
        ):
            remedy = "export the control with one element, after the batch axis"
            yield context.finding("onnx-shape", message, *path, remedy=remedy)
        provided = spec.dtype.config
        messages = (ort_rules.control_type(context.name, name, control, provided) for control in controls)
        if provided and (message := next(filter(None, messages), "")):
            remedy = (
                "write the values in the graph's type: int32_false_true, fp32_false_true, bool_false_true"
            )
            yield context.finding("onnx-type", message, *path, "control", remedy=remedy)


def _names(context: ModelContext, role: str, graph: ModelSignature) -> Iterator[Finding]:
    specs = (*graph.inputs, *graph.optional_inputs) if role == "input" else graph.outputs
    allowed = {spec.name for spec in specs}
    # The server lists every name: of a thousand, each of a thousand findings would.
    shown = sorted(allowed)[:LISTED]
    for index, item in enumerate(context.messages(role)):
        name = str(item.get("name", ""))
        if name and name not in allowed and (message := ort_rules.name(role, name, shown)):
            yield context.finding("onnx-name", message, role, index, "name")
    for index, item in enumerate(context.messages("batch_input") if role == "input" else []):
        for target in item.get("target_name", []):
            if target not in allowed and (message := ort_rules.name("input", target, shown)):
                yield context.finding("onnx-name", message, "batch_input", index, "target_name")


def _type(
    context: ModelContext, role: str, index: int, item: Mapping[str, Any], spec: TensorSpec
) -> Iterator[Finding]:
    data_type = item.get("data_type", "TYPE_INVALID")
    bf16 = spec.dtype.name == "bfloat16" and "bf16_io" in context.release.features
    provided = "TYPE_BF16" if spec.dtype.name == "bfloat16" else spec.dtype.config
    if not provided or (provided == "TYPE_BF16" and not bf16):
        name = provided or spec.dtype.name
        message = ort_rules.unsupported_datatype(context.name, role, spec.name, name)
        yield context.finding("onnx-type-unsupported", message, role, index, "data_type")
    elif data_type != "TYPE_INVALID" and (
        message := ort_rules.datatype(context.name, role, spec.name, data_type, provided)
    ):
        remedy = f"write data_type: {provided}"
        yield context.finding("onnx-type", message, role, index, "data_type", remedy=remedy)
