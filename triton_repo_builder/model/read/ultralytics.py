"""Metadata of an Ultralytics export: the task, the names of the classes and the size of the images.

All of it is in the ONNX file's own metadata (ultralytics/engine/exporter.py, ``self.metadata``).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError

KEYS = ("task", "names", "imgsz", "stride")
"""Metadata that no other exporter writes together."""
OLDER = ("names", "stride")
"""All that the exporter of YOLOv5's own repository writes."""
LARGEST = 8192
"""Pixels of an edge: more is a mistake in the file."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """One exported model."""

    task: str
    """``detect``, ``segment``, ``classify``, ``pose`` or ``obb``."""
    names: tuple[str, ...]
    size: tuple[int, int]
    """Height and width of the images that it takes."""
    end_to_end: bool
    """Whether the graph gives boxes of which none has to be suppressed."""


def older(metadata: Mapping[str, str]) -> bool:
    """Whether the file is of YOLOv5's own repository, whose boxes have an objectness."""
    return all(key in metadata for key in OLDER) and "task" not in metadata


def export(metadata: Mapping[str, str], path: Path) -> Export | None:
    """None for a file of another exporter. Raises ``TrbError`` UNSUPPORTED_MODEL if it cannot be read."""
    if not all(key in metadata for key in KEYS):
        return None
    try:
        named = ast.literal_eval(metadata["names"])
        if isinstance(named, (list, tuple)):
            named = dict(enumerate(named))
        size = ast.literal_eval(metadata["imgsz"])
        size = [size, size] if isinstance(size, int) else size
        height, width = (int(edge) for edge in size)
        if sorted(named) != list(range(len(named))) or not named:
            raise ValueError("names")
        if not (0 < height <= LARGEST and 0 < width <= LARGEST):
            raise ValueError("imgsz")
        names = tuple(" ".join(str(named[number]).split()) for number in range(len(named)))
        for name in names:
            name.encode()
    except (ValueError, TypeError, SyntaxError, KeyError, MemoryError, RecursionError):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "Ultralytics' metadata in this file cannot be read: 'names' or 'imgsz' is not as it writes them",
            where=str(path),
            remedy="export the model again, or use --task tensor",
        ) from None
    return Export(
        task=metadata["task"],
        names=names,
        size=(height, width),
        end_to_end=metadata.get("end2end", "").lower() == "true",
    )
