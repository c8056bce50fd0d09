"""ONNX file → ``ModelSignature``, by its skeleton: no weight is read."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

import onnx

from triton_repo_builder.base import containment, dtypes, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.graph import activations, adapt, expansion, walk
from triton_repo_builder.model.graph.embedding_table import vocabulary
from triton_repo_builder.model.read import empty_cache, input_constants, input_names, skeleton, source
from triton_repo_builder.model.read.signature import (
    Dim,
    ExternalFile,
    ModelSignature,
    TensorSpec,
    batchability,
)
from triton_repo_builder.model.read.skeleton import Skeleton
from triton_repo_builder.model.read.source import Source, SourceOverrides

NOTHING = SourceOverrides()
_DIGITS = re.compile("[0-9]{1,19}")


def read_source(model: Path, overrides: SourceOverrides = NOTHING) -> Source:
    """The ONNX file at or in ``model``, its signature, and the files beside it. Raises ``TrbError``."""
    graph = skeleton.read(source.model_file(model, overrides.file))
    stated = signature(graph)
    for file in stated.external:
        containment.check_within(graph.path.parent, graph.path.parent / file.location)
    if overrides.constants:
        graph = replace(graph, constants=input_constants.read(stated, overrides.constants))
        stated = signature(graph)
    if caches := empty_cache.recognise(stated):
        graph = replace(graph, caches=caches)
        stated = signature(graph)
    read = source.describe(graph, stated, model, overrides)
    if read.tokenizer is None and not overrides.inputs:
        return read
    if flat := input_names.flat(read.signature):
        return _with(read, replace(graph, flat=flat))
    renamed = input_names.recognise(read.signature, overrides.inputs)
    return _with(read, replace(graph, renamed=renamed)) if renamed else read


def as_exported(read: Source) -> Source:
    """The source with the inputs as the file names them; only constants are left out."""
    graph = replace(read.skeleton, renamed={}, flat=None, caches=())
    return _with(read, graph) if graph != read.skeleton else read


def _with(read: Source, graph: Skeleton) -> Source:
    return replace(read, skeleton=graph, signature=signature(graph))


def read_signature(path: Path) -> ModelSignature:
    """Inputs, outputs and external data of the model at ``path``.

    Raises ``TrbError``: NOT_ONNX, TRUNCATED, LFS_POINTER, EXTERNAL_DATA, NOT_FOUND.
    """
    return signature(skeleton.read(path))


def load(graph: Skeleton, *, location: str | None = None) -> onnx.ModelProto:
    """The skeleton as a message, for ``model/graph/`` only; its weights are in the file ``location``."""
    from google.protobuf.message import DecodeError

    path = graph.path
    try:
        model = onnx.load_from_string(graph.content(location or path.name))
    except DecodeError:
        raise TrbError(
            Code.NOT_ONNX,
            "this is not an ONNX model: a part of it does not decode",
            where=str(path),
            remedy="export or download the model again",
        ) from None
    # Operator sets follow the graph: a file that is cut off just there still decodes.
    imported = {entry.domain or "ai.onnx" for entry in model.opset_import}
    # ONNX Runtime takes operators of any set that it knows without an import, but for the standard one.
    missing = (
        {node.domain or "ai.onnx" for node in model.graph.node} - imported - {"com.microsoft", "ai.onnx.ml"}
    )
    if not imported or missing:
        opset = f"the operator set '{min(missing)}'" if missing else "any operator set"
        raise TrbError(
            Code.TRUNCATED,
            f"the file does not say which version of {opset} it uses: it is cut off or damaged",
            where=str(path),
            remedy="copy or download the model again and compare sizes",
        )
    if fault := expansion.fault(model):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            fault,
            where=str(path),
            remedy="export it again without functions, or inline them: onnx.inliner.inline_local_functions",
        )
    adapt.adapt(model, graph)
    return model


def signature(graph: Skeleton) -> ModelSignature:
    """Raises the same ``TrbError`` as ``read_signature`` for faults inside the graph."""
    inside = secrets.token_hex(16)  # a name for the file itself that its author could not state
    model, path = load(graph, location=inside), graph.path
    if any(isinstance(text, bytes) for text in walk.names(model)):
        raise TrbError(
            Code.NOT_ONNX,
            "this is not an ONNX model: a name in it is not UTF-8",
            where=str(path),
            remedy="export or download the model again",
        )
    initialized = {tensor.name for tensor in model.graph.initializer}
    initialized |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    inputs = tuple(_spec(value) for value in model.graph.input if value.name not in initialized)
    outputs = tuple(_spec(value) for value in model.graph.output)
    named = {spec.name for spec in outputs}
    external = tuple(_external(model, path, inside))
    return ModelSignature(
        inputs=inputs,
        outputs=outputs,
        optional_inputs=tuple(_spec(value) for value in model.graph.input if value.name in initialized),
        ir_version=model.ir_version,
        opsets=_opsets(model),
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        operators=frozenset(node.op_type for node in walk.nodes(model)),
        external=external,
        bytes=path.stat().st_size + sum(file.bytes for file in external),
        batch=batchability(inputs, outputs),
        vocabulary=vocabulary(model.graph),
        made_by=activations.made_by(model.graph, named),
        half_precision=_has_halves(model, (*inputs, *outputs)),
        metadata={entry.key: entry.value for entry in model.metadata_props if isinstance(entry.value, str)},
    )


def _has_halves(model: onnx.ModelProto, edges: Iterable[TensorSpec]) -> bool:
    """Whether a model has numbers of 16 bits: weights, inputs, outputs, or casts to them."""
    casts = (
        attribute.i
        for node in walk.nodes(model)
        if node.op_type == "Cast"
        for attribute in node.attribute
        if attribute.name == "to"
    )
    weights = (tensor.data_type for tensor in walk.tensors(model))
    types = itertools.chain((spec.dtype.onnx for spec in edges), casts, weights)
    return any(number in dtypes.HALF for number in types)


def _opsets(model: onnx.ModelProto) -> tuple[tuple[str, int], ...]:
    versions = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    return tuple(sorted(versions.items(), key=lambda item: (item[0] != "ai.onnx", item[0])))


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    kind = value.type.WhichOneof("value") or "tensor_type"
    tensor = value.type.tensor_type
    shape: tuple[Dim, ...] | None = None
    if kind == "tensor_type" and tensor.HasField("shape"):
        shape = tuple(read_dim(dim) for dim in tensor.shape.dim)
    return TensorSpec(
        name=value.name,
        dtype=dtypes.from_onnx(tensor.elem_type),
        shape=shape,
        kind=kind.removesuffix("_type"),
    )


def read_dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    """A size, a symbolic name, or None."""
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        # Some exporters write -1 or 0 for "any size".
        return dim.dim_value if dim.dim_value > 0 else None
    return dim.dim_param or None


def _bytes(text: str) -> int:
    """A number of bytes as ONNX Runtime reads it. Raises ValueError, TypeError."""
    if not _DIGITS.fullmatch(text):
        raise ValueError
    return int(text)


def _external(model: onnx.ModelProto, path: Path, inside: str) -> Iterable[ExternalFile]:
    """The files beside the model that hold its data, each looked at once; large tensors of it are ``inside``.

    A location must be a plain relative path: ONNX Runtime opens nothing outside the model's folder.
    """
    needed: dict[PurePosixPath, int] = {}
    for tensor in walk.tensors(model):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if tensor.data_location != onnx.TensorProto.EXTERNAL or location == inside:
            continue
        try:
            location.encode()
            end = sum(_bytes(entries.get(key, "0")) for key in ("offset", "length"))
        except (ValueError, TypeError, AttributeError):  # text that is not UTF-8 is bytes
            raise TrbError(
                Code.EXTERNAL_DATA,
                f"the offset or length of '{tensor.name}' in '{location}' is not a number of bytes",
                where=str(path),
                remedy="save the model again with its external data",
            ) from None
        posix = PurePosixPath(location)
        needed[posix] = max(needed.get(posix, 0), end)
    for posix, end in sorted(needed.items()):
        location = str(posix)
        if not posix.parts or posix.is_absolute() or ".." in posix.parts:
            raise TrbError(
                Code.EXTERNAL_DATA,
                f"its external data is outside its folder: '{location}'",
                where=str(path),
                remedy="save the model again with its data beside it",
            )
        file = path.parent / posix
        if not files.is_file(file):
            raise TrbError(
                Code.EXTERNAL_DATA,
                f"its weights are in '{location}', which is not there",
                where=str(path),
                remedy=f"copy '{location}' beside the model, under that name",
            )
        if file.samefile(path):
            raise TrbError(
                Code.EXTERNAL_DATA,
                f"its external data is said to be in '{location}', which is the model itself",
                where=str(path),
                remedy="save the model again, with its data inside or in a file beside it",
            )
        size = file.stat().st_size
        with files.opened(file) as stream:
            if files.is_lfs_pointer(stream.read(len(files.LFS_POINTER))):
                raise TrbError(
                    Code.LFS_POINTER,
                    "this is a git-LFS pointer, not the weights",
                    where=str(file),
                    remedy="run 'git lfs pull' in that repository, then build again",
                )
        if size < end:
            raise TrbError(
                Code.TRUNCATED,
                f"the file is cut off: {size:,} bytes of at least {end:,}",
                where=str(file),
                remedy="copy or download it again and compare sizes",
            )
        yield ExternalFile(location=location, bytes=size)
