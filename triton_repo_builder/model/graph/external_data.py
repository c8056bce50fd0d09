"""A model whose data files are not in the folder that its own file is in, as ONNX Runtime opens it.

The user may name a link to the model's file. ONNX Runtime opens nothing outside one folder. So every file
is named by its real path, and that folder is the root of the file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from triton_repo_builder.model.graph import reader, walk
from triton_repo_builder.model.read.skeleton import Skeleton

ROOT = Path("/")


def leaves(path: Path, locations: tuple[str, ...]) -> bool:
    """Whether one of the data files beside the model at ``path`` is in another folder than that file."""
    home = path.resolve().parent
    return any(not (path.parent / location).resolve().is_relative_to(home) for location in locations)


def resolved(graph: Skeleton, instead: onnx.ModelProto | None = None) -> bytes:
    """The small model with each location relative to ``ROOT``; raises as ``reader.load``.

    ``instead``: the graph with changes, as ``reader.load`` gives it.
    """
    model, path = instead or reader.load(graph), graph.path
    for entry in _entries(model):
        entry.value = str((path.parent / entry.value).resolve().relative_to(ROOT))
    content: bytes = model.SerializeToString()
    return content


def moved(model: onnx.ModelProto, location: str) -> bytes:
    """The small model, whose weights are all in the file ``location``."""
    for entry in _entries(model):
        entry.value = location
    content: bytes = model.SerializeToString()
    return content


def _entries(model: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    """The location of each tensor with data in another file."""
    for tensor in walk.tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield from (entry for entry in tensor.external_data if entry.key == "location")
