"""The ONNX file itself: readable, complete, and not too new for the release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder import releases
from triton_repo_builder.check.context import ModelContext, report
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.line_numbers import Key
from triton_repo_builder.check.rules import onnx_tensors
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.read.signature import ModelSignature


def check(context: ModelContext) -> Iterator[Finding]:
    """Each selected version's graph by itself, then against config.pbtxt."""
    if context.backend != "onnxruntime" or context.ensemble:
        return
    yield from _options(context)
    if context.config.decoupled:
        message = "decoupled on an ONNX model: it answers once, and HTTP refuses every request (501)"
        yield context.finding("onnx-decoupled", message, "model_transaction_policy")
    for version in context.selected:
        file = context.file(version)
        if file is None or not file.is_file():
            continue  # layout.py reports it.
        graph = context.repo.graph(file)
        if isinstance(graph, ModelSignature):
            yield from _age(context, file, graph)
            yield from onnx_tensors.check(context, graph)
        elif graph.code is not Code.LFS_POINTER:
            yield _unreadable(file, graph)


def _unreadable(file: Path, error: TrbError) -> Finding:
    code = "onnx-external-data" if error.code is Code.EXTERNAL_DATA else "onnx-unreadable"
    return report(code, error.where or str(file), error.message, remedy=error.remedy)


def _age(context: ModelContext, file: Path, graph: ModelSignature) -> Iterator[Finding]:
    release = context.release
    fitting = [name for name in releases.can_load(graph.ir_version, graph.opset) if name > release.name]
    later = f", or serve with release {fitting[0]} or later" if fitting else ""
    if graph.ir_version > release.max_ir:
        message = (
            f"Unsupported model IR version: {graph.ir_version}, max supported IR version: {release.max_ir}"
        )
        lower = f"'trb build --triton-release {release.name}' lowers it if that is sound"
        yield report("onnx-ir", str(file), message, remedy=f"{lower}{later}")
    if graph.opset > release.max_opset:
        message = f"Opset {graph.opset} is under development and support for this is limited"
        remedy = f"export with opset {release.max_opset}{later}"
        yield report("onnx-opset", str(file), message, remedy=remedy)


_NUMBERS = ("intra_op_thread_count", "inter_op_thread_count", "execution_mode")
_BOOLEANS = ("enable_mem_arena", "enable_mem_pattern")


def _options(context: ModelContext) -> Iterator[Finding]:
    """Parameters whose text the backend converts; it reads ``2x`` as 2 and ignores what it does not know."""
    parameters = context.config.parameters
    for key in _NUMBERS:
        value = parameters.get(key, "0")
        message = ""
        if not re.match(r"\s*[-+]?\d", value):
            message = f"failed to convert '{value}' to integral number"
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
        if parameters.get(key, "0").lower() not in ("0", "1", "true", "false"):
            message = f"failed to convert '{parameters[key]}' to boolean"
            yield context.finding("onnx-option", message, "parameters", Key(key), remedy=f"0 or 1 for {key}")
    shrinkage = parameters.get("memory.enable_memory_arena_shrinkage")
    if shrinkage and parameters.get("enable_mem_arena", "1").lower() in ("0", "false"):
        message = "memory.enable_memory_arena_shrinkage without the arena: every request fails"
        yield context.finding("onnx-option", message, "parameters", remedy="drop one of the two")
