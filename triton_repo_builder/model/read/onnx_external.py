"""The files of an ONNX file's external data, before they are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from triton_repo_builder.model.read import skeleton, wire
from triton_repo_builder.model.read.skeleton import GRAPH_INITIALIZER, TENSOR_EXTERNAL_DATA

KEY, VALUE = 1, 2
"""Fields of StringStringEntryProto."""


def locations(path: Path) -> tuple[str, ...]:
    """The places of the initializers' data as the file states them, each once, sorted.

    Raises ``TrbError`` as ``skeleton.read`` does. Tensors in the attributes of nodes are left out: exporters
    keep these inside.
    """
    graphs = (part for part in skeleton.read(path).parts if isinstance(part, tuple))
    return tuple(sorted({each for graph in graphs for piece in graph for each in _locations(piece)}))


def _locations(piece: object) -> Iterator[str]:
    if not isinstance(piece, bytes):  # a large tensor, whose data is in the file
        return
    view = memoryview(piece)
    for item in wire.fields(view, 0, len(view)):
        if item.number == GRAPH_INITIALIZER and item.wire_type == wire.BYTES:
            for entry in wire.fields(view, item.value, item.end):
                if entry.number == TENSOR_EXTERNAL_DATA and entry.wire_type == wire.BYTES:
                    pairs = wire.fields(view, entry.value, entry.end)
                    texts = {each.number: bytes(view[each.value : each.end]) for each in pairs}
                    if texts.get(KEY) == b"location" and VALUE in texts:
                        yield texts[VALUE].decode("utf-8", "replace")
