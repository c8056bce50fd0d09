"""A model whose data files are not in the folder that its own file is in, as ONNX Runtime opens it.

The user may name a link to the model's file. ONNX Runtime opens nothing outside one folder. So every file
is named by its real path, and that folder is the root of the file system.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from triton_repo_builder.graph import reader, walk
from triton_repo_builder.read.skeleton import Skeleton

ROOT = Path("/")


def leaves(path: Path, locations: tuple[str, ...]) -> bool:
    """Whether one of the data files beside the model at ``path`` is in another folder than that file."""
    home = path.resolve().parent
    return any(not (path.parent / location).resolve().is_relative_to(home) for location in locations)


def resolved(graph: Skeleton) -> bytes:
    """The small model with each location relative to ``ROOT``; raises as ``reader.load``."""
    model, path = reader.load(graph), graph.path
    for tensor in walk.tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = str((path.parent / entry.value).resolve().relative_to(ROOT))
    content: bytes = model.SerializeToString()
    return content
