"""The skeleton of an ONNX file: the same model with its large weights left where they are.

A large initializer is one ``raw_data`` field of a ``TensorProto``. Walking the wire format and skipping
those fields gives a small model whose initializers are ``data_location: EXTERNAL`` with ``location`` the
user's own file and ``offset``/``length`` of the bytes already in it. The user's file stays byte
for byte, and cost grows with the graph, not with the weights.

Field numbers are those of onnx.proto (github.com/onnx/onnx).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import foreign, wire
from triton_repo_builder.model.read.empty_cache import EmptyCache
from triton_repo_builder.model.read.input_constants import InputConstant

MODEL_IR_VERSION, MODEL_GRAPH = 1, 7
MODEL_FIELDS = {*range(1, 9), 14, 20, 25, 26}
GRAPH_INITIALIZER = 5
TENSOR_RAW_DATA, TENSOR_EXTERNAL_DATA, TENSOR_DATA_LOCATION = 9, 13, 14
EXTERNAL = 1

INLINE = 1024
"""Initializers up to this many bytes stay inside: shapes and axes, which ONNX Runtime must see."""

PASSED = 1 << 20
"""Bytes of weights after which the file's pages are given back."""


@dataclass(frozen=True, kw_only=True)
class LargeTensor:
    """An initializer whose data stays in the user's file."""

    fields: bytes
    """All of the tensor but its data."""
    offset: int
    length: int


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """The model at ``path`` without its large tensors' data, read once."""

    path: Path
    parts: tuple[bytes | tuple[bytes | LargeTensor, ...], ...]
    """The fields of the model as they are in the file; a tuple is a graph."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Usual names of inputs, by the file's names if they differ (``input_names.py``)."""
    flat: tuple[str, str] | None = None
    """The file's inputs of all tokens end to end and of each row's place in them; None: it takes rows."""
    constants: tuple[InputConstant, ...] = ()
    """Inputs of the file that the served graph has not."""
    caches: tuple[EmptyCache, ...] = ()
    """Inputs of the file that are always empty; the served graph omits them."""

    @property
    def adapted(self) -> bool:
        """Whether the served graph takes other inputs than the file."""
        return bool(self.renamed or self.flat or self.constants or self.caches)

    def adapt(self, other: Skeleton) -> Skeleton:
        """``other``, a graph with the same inputs, with these changes to them."""
        return replace(
            other, renamed=self.renamed, flat=self.flat, constants=self.constants, caches=self.caches
        )

    @property
    def external_bytes(self) -> int:
        """Bytes of weights that stay in the user's file."""
        graphs = (part for part in self.parts if isinstance(part, tuple))
        return sum(piece.length for graph in graphs for piece in graph if isinstance(piece, LargeTensor))

    def content(self, location: str) -> bytes:
        """The small model, for a user's file that is called ``location`` beside it."""
        pieces: list[bytes] = []
        for part in self.parts:
            if isinstance(part, bytes):
                pieces.append(part)
                continue
            graph = [p if isinstance(p, bytes) else _initializer(p, location) for p in part]
            pieces += [wire.varint(MODEL_GRAPH << 3 | wire.BYTES), wire.varint(sum(map(len, graph))), *graph]
        return b"".join(pieces)


def read(path: Path) -> Skeleton:
    """Raises ``TrbError`` for a file that is missing, empty, truncated, a git-LFS pointer or not ONNX."""
    if path.exists() and not path.is_file():
        raise TrbError(
            Code.NOT_FOUND, "this is not a regular file", where=str(path), remedy="name the ONNX file itself"
        )
    try:
        with files.opened(path) as file:
            head = file.read(foreign.HEAD)
            if not head:
                raise TrbError(
                    Code.NOT_ONNX, "the file is empty", where=str(path), remedy="export the model again"
                )
            if files.is_lfs_pointer(head):
                raise TrbError(
                    Code.LFS_POINTER,
                    "this is a git-LFS pointer, not the model",
                    where=str(path),
                    remedy="run 'git lfs pull' in that repository, then build again",
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
                return _skeleton(view, path, head)
    except FileNotFoundError:
        raise TrbError(
            Code.NOT_FOUND, "no such model file", where=str(path), remedy="check the path"
        ) from None
    except OSError as error:
        raise files.unreadable(path, error) from None


def _skeleton(view: memoryview, path: Path, head: bytes) -> Skeleton:
    # Copies, not views: a view that a traceback still holds keeps the file from being unmapped.
    numbers: set[int] = set()
    parts: list[bytes | tuple[bytes | LargeTensor, ...]] = []
    try:
        for item in wire.fields(view, 0, len(view)):
            if item.number not in MODEL_FIELDS:
                raise wire.WireError(f"unknown field {item.number}")
            numbers.add(item.number)
            is_graph = item.number == MODEL_GRAPH and item.wire_type == wire.BYTES
            parts.append(tuple(_graph(view, item)) if is_graph else bytes(view[item.start : item.end]))
    except wire.WireTruncated:
        # A cut-off model still begins like one; anything else merely looks like a long field.
        if MODEL_IR_VERSION in numbers or head[:1] == b"\x08":
            raise TrbError(
                Code.TRUNCATED,
                f"the file is cut off after {len(view):,} bytes",
                where=str(path),
                remedy="copy or download the model again and compare sizes",
            ) from None
        raise foreign.refused(path, head) from None
    except wire.WireError:
        raise foreign.refused(path, head) from None
    if MODEL_GRAPH not in numbers:
        raise foreign.refused(path, head)
    return Skeleton(path=path, parts=tuple(parts))


def _graph(view: memoryview, graph: wire.WireField) -> Iterator[bytes | LargeTensor]:
    for item in wire.fields(view, graph.value, graph.end):
        raw = _raw_data(view, item) if item.number == GRAPH_INITIALIZER else None
        if raw is None or raw.end - raw.value <= INLINE:
            yield bytes(view[item.start : item.end])
        else:
            length = raw.end - raw.value
            rest = bytes(view[item.value : raw.start]) + bytes(view[raw.end : item.end])
            yield LargeTensor(fields=rest, offset=raw.value, length=length)
            if length > PASSED:
                _unmap(view)


def _unmap(view: memoryview) -> None:
    """Give back the pages read so far: the kernel maps whole blocks of megabytes around each."""
    if isinstance(view.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)


def _raw_data(view: memoryview, tensor: wire.WireField) -> wire.WireField | None:
    """Position of the tensor's data; None also for a repeated field, which protobuf itself must resolve.

    None if it states external data as well: ONNX Runtime may read these instead.
    """
    fields = list(wire.fields(view, tensor.value, tensor.end))
    if any(item.number == TENSOR_EXTERNAL_DATA for item in fields):
        return None
    raw = [item for item in fields if item.number == TENSOR_RAW_DATA]
    return raw[0] if len(raw) == 1 else None


def _initializer(tensor: LargeTensor, location: str) -> bytes:
    """The tensor with the location of its data instead of the data."""
    entries = (("location", location), ("offset", str(tensor.offset)), ("length", str(tensor.length)))
    pieces = [tensor.fields]
    for key, value in entries:
        pair = wire.field(1, key.encode()) + wire.field(2, value.encode())
        pieces.append(wire.field(TENSOR_EXTERNAL_DATA, pair))
    pieces.append(wire.varint(TENSOR_DATA_LOCATION << 3 | wire.VARINT) + wire.varint(EXTERNAL))
    return wire.field(GRAPH_INITIALIZER, b"".join(pieces))
