"""Shapes that the graph implies although it does not state them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import onnx

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.releases import Release
from triton_repo_builder.model.graph import isolated, reader, session
from triton_repo_builder.model.graph.session import ModelSession
from triton_repo_builder.model.read.signature import Dim, ModelSignature
from triton_repo_builder.model.read.skeleton import Skeleton
from triton_repo_builder.runtime.onnxruntime_backend import ort_hidden

ROOM, SHARE = 100 << 20, 20
"""Bytes that an inference may take, and bytes for each of the graph: it has no large weights."""
SECONDS = 60.0
"""For loading a graph that is only asked for its shapes, and for one inference."""
LARGEST_SIZE = 1 << 24
"""A fixed size above this is a mistake, for which ONNX takes gigabytes to follow the values of shapes."""
_ERROR = re.compile(
    r"\(op_type:(?P<op>[^,)]*)(?:, node name: (?P<node>[^)]*))?\): "
    r"(?P<text>\[(?:Shape|Type)InferenceError\] [^\n]*)"
)
_INNER = re.compile(r"\(op_type:[^)]*\): \[\w+\] Inference error\(s\): .*?\n\n", re.DOTALL)
"""Errors in a branch, a body or a function, of which ONNX Runtime may never take the branch."""
_TOLERATED = re.compile(
    # ONNX Runtime warns of it, and keeps its inferred size.
    r"Inferred shape and existing shape differ"
    # ONNX wants nodes in order and an import of each domain, and knows no operators but its own.
    r"|expected to have type but instead is null|No opset import|[Uu]nknown"
    # Newer than the ONNX of the releases: a Gemm of sizes that differ, which fails with the first request.
    r"|Dimension mismatch in unification"
    # ONNX Runtime makes an initializer of a constant before it infers anything.
    r"|attributes 'value', 'value_\*'"
)


class Shapes(NamedTuple):
    """Shapes of outputs by name; one that is not known is missing."""

    sizes: Mapping[str, tuple[Dim, ...]]
    exact: bool
    """Whether they are ONNX Runtime's own."""


def faults(model: onnx.ModelProto, where: str) -> Iterator[str]:
    """Sizes and types that do not fit together, in the words of ONNX Runtime, whose rules are ONNX's own.

    From inputs and weights alone: ONNX Runtime only warns of wrong shapes that a graph states elsewhere.
    Raises ``TrbError`` if the inference crashed on the file ``where``, or took too long.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.Clear()
    try:
        _infer(bare, where, check_type=False, strict_mode=True)
    except isolated.Failed as error:
        for error_match in _ERROR.finditer(_INNER.sub("", str(error))):
            if not _TOLERATED.search(error_match["text"]):
                yield f"Node ({error_match['node'] or ''}) Op ({error_match['op']}) {error_match['text']}"


def output_shapes(
    graph: Skeleton, signature: ModelSignature, release: Release, opened: ModelSession | None = None
) -> Shapes:
    """Output shapes as the release's ONNX Runtime has them once it has loaded and optimised the graph.

    Triton compares a configuration with these. They follow from ONNX Runtime's own fusions, too, so it is
    asked; ``opened``: the file in it, which is another graph if trb changes inputs. Of a graph that it
    cannot load here the answer is ONNX's inference.
    """
    model = reader.load(graph)
    try:
        if ort_hidden.hide(model, release.infers) or graph.flat or graph.constants or graph.caches:
            opened = session.load(graph, signature, instead=model, seconds=SECONDS)
        elif opened is None:
            opened = session.load(graph, signature, seconds=SECONDS)
    except (isolated.Failed, TrbError):
        return Shapes(_implied(model), exact=False)
    # It gives no sizes both for a scalar and for an unknown shape.
    return Shapes({name: shape for name, shape in opened.outputs.items() if shape}, exact=True)


def _implied(model: onnx.ModelProto) -> dict[str, tuple[Dim, ...]]:
    try:
        inferred = _infer(model)
    except isolated.Failed:  # operators that ONNX does not know
        return {}
    shapes = {}
    for value in inferred.graph.output:
        if value.type.tensor_type.HasField("shape"):
            shapes[value.name] = tuple(reader.read_dim(dim) for dim in value.type.tensor_type.shape.dim)
    return shapes


def infer(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy that states every shape that follows from the stated ones; None if ONNX fails at it."""
    try:
        inferred = _infer(model)
        # Of the model again: sizes that the first pass named keep their names, and equal ones have several.
        return _infer(model, data_prop=True) if _sane(inferred) else inferred
    except isolated.Failed:  # a model with operators that ONNX does not know is served all the same
        return None


def _infer(model: onnx.ModelProto, where: str = "", **options: bool) -> onnx.ModelProto:
    """ONNX's inference, with a limit on memory: a graph may reshape to as many dimensions as it says.

    It runs in the process of users' graphs: its C++ code may crash where an allocation fails. Raises
    ``isolated.Failed`` with the library's error, and ``TrbError`` if it crashed or took too long.
    """
    room = ROOM + SHARE * model.ByteSize()
    content = model.SerializeToString()
    inferred, error = isolated.ask("infer", content, options, room, longest=SECONDS, where=where)
    if inferred is None:
        raise isolated.Failed(error)
    return onnx.load_model_from_string(inferred)


def _sane(model: onnx.ModelProto) -> bool:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = (value.type.tensor_type.shape for value in values)
    return all(dim.dim_value <= LARGEST_SIZE for shape in shapes for dim in shape.dim)
