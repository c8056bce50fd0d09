"""Inputs and outputs of config.pbtxt against the graph: count, names, types; shapes in onnx_shapes.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triton_repo_builder.check.context import Site
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.rules import onnx_shapes
from triton_repo_builder.check.rules.onnx_shapes import Pair
from triton_repo_builder.read.signature import ModelSignature, TensorSpec

DEFAULT_ROWS = 4
"""The backend's default-max-batch-size, set when it completes a config by itself."""


def check(site: Site, graph: ModelSignature) -> Iterator[Finding]:
    """Everything the backend compares when it loads the model."""
    for role, specs in (("input", graph.inputs), ("output", graph.outputs)):
        for spec in specs:
            if spec.kind != "tensor":
                message = (
                    f"Unsupported ONNX Type 'ONNX_TYPE_{spec.kind.upper()}' for I/O '{spec.name}', "
                    f"expected 'ONNX_TYPE_TENSOR'."
                )
                yield site.finding("onnx-kind", message, role)
    inputs, outputs = site.messages("input"), site.messages("output")
    rows = site.rows
    if not inputs or not outputs:
        yield from _completed(site, graph)
        rows = rows or (DEFAULT_ROWS if graph.batch.possible else 0)
    if inputs:
        yield from _count(site, graph)
        yield from _names(site, "input", graph)
    if outputs:
        yield from _names(site, "output", graph)
    for role, items in (("input", inputs), ("output", outputs)):
        for index, item in enumerate(items):
            found = _spec(graph, role, str(item.get("name", "")))
            if found is not None and found.kind == "tensor":
                yield from _type(site, role, index, item, found)
                if found in graph.optional_inputs and rows > 0:
                    continue  # _count refuses it whatever its shape.
                yield from onnx_shapes.check(Pair.of(site, graph, role, index, found, rows))


def _spec(graph: ModelSignature, role: str, name: str) -> TensorSpec | None:
    if role == "output":
        return graph.output(name)
    return graph.input(name) or next((spec for spec in graph.optional_inputs if spec.name == name), None)


def _completed(site: Site, graph: ModelSignature) -> Iterator[Finding]:
    if site.messages("input") or site.messages("output"):
        if site.rows == 0 and graph.batch.possible:
            message = f"the server sets max_batch_size to {DEFAULT_ROWS} before it compares the dims"
            yield site.finding("onnx-completed", message, "max_batch_size")
    elif site.rows > 0 and not graph.batch.possible:
        message = (
            f"autofill failed for model '{site.name}': model does not support batching while non-zero "
            f"max_batch_size is specified"
        )
        yield site.finding("onnx-batch-axis", message, "max_batch_size")
    elif site.rows == 0 and graph.batch.possible and site.written("max_batch_size"):
        message = f"without inputs and outputs the server overwrites max_batch_size 0 with {DEFAULT_ROWS}"
        yield site.finding("onnx-completed", message, "max_batch_size")


def _count(site: Site, graph: ModelSignature) -> Iterator[Finding]:
    """Names are compared first: a wrong name makes the counts agree by accident."""
    names = _configured(site)
    optional = {spec.name for spec in graph.optional_inputs}
    count = len(names) - sum(bool(item.get("optional")) for item in site.messages("input"))
    if count != len(graph.inputs):
        message = (
            f"unable to load model '{site.name}', configuration expects {count} inputs, "
            f"model provides {len(graph.inputs)}"
        )
        missing = [spec.name for spec in graph.inputs if spec.name not in names]
        marked = [
            item["name"]
            for item in site.messages("input")
            if item.get("optional") and graph.input(item["name"])
        ]
        listed = [name for name in names if name in optional]
        hints = [f"add {', '.join(missing)}"] if missing else []
        hints += [f"drop optional from {', '.join(marked)}"] if marked else []
        hints += [f"drop {', '.join(listed)}, which is an initializer"] if listed else []
        yield site.finding("onnx-input-count", message, "input", remedy="; ".join(hints))
    for index, item in enumerate(site.messages("input")):
        if item.get("optional") and site.rows > 0 and item.get("name") in optional:
            message = (
                f"unable to load model '{site.name}', optional input '{item['name']}' is not supported "
                "for models "
                f"that support batching"
            )
            yield site.finding("onnx-optional", message, "input", index, "optional")


def _configured(site: Site) -> list[str]:
    """Every name the config feeds to the graph: inputs, batch inputs, sequence controls and states."""
    names = [str(item.get("name", "")) for item in site.messages("input")]
    names += [target for item in site.messages("batch_input") for target in item.get("target_name", [])]
    sequence = site.config.get("sequence_batching", {})
    names += [item.get("name", "") for item in sequence.get("control_input", [])]
    return names + [item.get("input_name", "") for item in sequence.get("state", [])]


def _names(site: Site, role: str, graph: ModelSignature) -> Iterator[Finding]:
    specs = (*graph.inputs, *graph.optional_inputs) if role == "input" else graph.outputs
    allowed = sorted(spec.name for spec in specs)
    for index, item in enumerate(site.messages(role)):
        if item.get("name") and item["name"] not in allowed:
            message = (
                f"unexpected inference {role} '{item['name']}', allowed {role}s are: {', '.join(allowed)}"
            )
            yield site.finding("onnx-name", message, role, index, "name")
    for index, item in enumerate(site.messages("batch_input") if role == "input" else []):
        for target in item.get("target_name", []):
            if target not in allowed:
                message = f"unexpected inference input '{target}', allowed inputs are: {', '.join(allowed)}"
                yield site.finding("onnx-name", message, "batch_input", index, "target_name")


def _type(site: Site, role: str, index: int, item: Mapping[str, Any], spec: TensorSpec) -> Iterator[Finding]:
    given = item.get("data_type", "TYPE_INVALID")
    bf16 = spec.dtype.name == "bfloat16" and "bf16_io" in site.release.features
    provided = "TYPE_BF16" if spec.dtype.name == "bfloat16" else spec.dtype.config
    if not provided or (provided == "TYPE_BF16" and not bf16):
        name = provided or spec.dtype.name
        message = f"unsupported datatype {name} for {role} '{spec.name}' for model '{site.name}'"
        yield site.finding("onnx-type-unsupported", message, role, index, "data_type")
    elif given not in ("TYPE_INVALID", provided):
        message = (
            f"unable to load model '{site.name}', configuration expects datatype {given} for {role} "
            f"'{spec.name}', "
            f"model provides {provided}"
        )
        yield site.finding(
            "onnx-type", message, role, index, "data_type", remedy=f"write data_type: {provided}"
        )
