"""The ONNX file itself: readable, complete, and not too new for the release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check.context import ModelContext, relative, report
from triton_repo_builder.check.finding import Finding, Severity
from triton_repo_builder.check.rules import onnx_options, onnx_tensors
from triton_repo_builder.model.read.signature import ModelSignature

_LIBRARY = ("model_operations", "op_library_filename")


def check(context: ModelContext) -> Iterator[Finding]:
    """Each selected version's graph by itself, then against config.pbtxt."""
    if context.backend != "onnxruntime" or context.ensemble:
        return
    yield from onnx_options.check(context)
    if context.config.decoupled:
        message = "decoupled on an ONNX model: it answers once, and HTTP refuses every request (501)"
        yield context.finding("onnx-decoupled", message, "model_transaction_policy")
    if not context.relocated:
        yield from files(context)


def files(context: ModelContext) -> Iterator[Finding]:
    """Each selected version's graph, compared with config.pbtxt if that parses."""
    if context.backend != "onnxruntime" or context.ensemble:
        return
    for version in context.selected:
        file = context.file(version)
        if file is None or not file.is_file():
            continue  # layout.py reports it.
        graph = context.repo.graph(file)
        if isinstance(graph, ModelSignature):
            yield from _age(context, file, graph)
            if context.model.error is None:
                yield from onnx_tensors.check(context, graph)
                yield from _nodes(context, file, graph)
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


def _nodes(context: ModelContext, file: Path, graph: ModelSignature) -> Iterator[Finding]:
    """Nodes that ONNX Runtime refuses; a library of custom operators may add any domain."""
    libraries = context.config.raw.get("model_operations", {}).get("op_library_filename", [])
    for fault in context.repo.faults(file):
        if not (libraries and "is not a registered function/op" in fault):
            yield report("onnx-graph", str(file), fault)
    yield from _kernels(context, file)
    for library in libraries:
        if message := relative(library, library=True):
            remedy = "write the absolute path that it has in the image"
            yield context.finding("onnx-library", message, *_LIBRARY, severity="warning", remedy=remedy)
        elif not Path(library).exists():
            message = (
                f"Failed to load library {library} with error: {library}: cannot open shared object file"
            )
            yield context.finding("onnx-library", message, *_LIBRARY, severity=context.absent(library))


def _kernels(context: ModelContext, file: Path) -> Iterator[Finding]:
    """Operators without a kernel for the CPU: an instance on a GPU may have one."""
    kinds = {group.get("kind", "KIND_AUTO") for group in context.messages("instance_group")} or {"KIND_AUTO"}
    certain = kinds & {"KIND_CPU", "KIND_MODEL"} or (context.image.gpus == 0 and "KIND_AUTO" in kinds)
    if kinds == {"KIND_GPU"}:
        return
    severity: Severity = "error" if certain else "warning"
    for fault in context.repo.without_kernel(file):
        yield report("onnx-kernel", str(file), fault, severity=severity)
