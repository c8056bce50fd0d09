"""A model file in ONNX Runtime: in a process of its own (``isolated.py``), large weights not copied."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from triton_repo_builder.model.graph import external_data, isolated
from triton_repo_builder.model.read.signature import ModelSignature
from triton_repo_builder.model.read.skeleton import Skeleton

MAPPED = 128 << 20
"""Bytes of weights from which on they are not loaded but mapped."""
_FOLDER = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's onnxruntime_session_options_config_keys.h."""
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSession:
    """A model that was loaded; it is forgotten with this object."""

    number: int
    inputs: Sequence[str]
    outputs: Mapping[str, tuple[Any, ...]]
    """Names and shapes."""
    longest: float
    """Seconds that a run may take."""
    where: str

    def __post_init__(self) -> None:
        weakref.finalize(self, isolated.SESSIONS.done.append, self.number).atexit = False

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model, like ``onnxruntime.InferenceSession.run``."""
        values: list[Any] = isolated.ask(
            "run", self.number, outputs, feeds, longest=self.longest, where=self.where
        )
        return values

    def seconds(self, feeds: Mapping[str, Any]) -> float:
        """How long a run takes."""
        return float(isolated.ask("seconds", self.number, feeds, longest=self.longest, where=self.where))


def load(
    graph: Skeleton,
    signature: ModelSignature,
    *,
    threads: int = 0,
    lean: bool = True,
    instead: onnx.ModelProto | None = None,
    seconds: float = 0,
) -> ModelSession:
    """ONNX Runtime on the user's own file, on the CPU. Raises ``isolated.Failed``; ``TrbError`` at a limit.

    It would copy all weights, and take no single file over 2 GB. Of a large one it gets the graph only, with
    the weights as external data in the user's file: it maps them, and without prepacking it needs no memory
    of its own for them; ``lean`` off: as a server runs it, with memory. ``threads``: 0 for all cores.
    ``instead``: the file's graph with changes. ``seconds`` that it may take; 0: as long as a run.
    """
    entries: dict[str, str] = {}
    model: str | bytes = str(graph.path.absolute())
    locations = tuple(file.location for file in signature.external)
    if external_data.leaves(graph.path, locations) or (instead is not None and locations):
        model = external_data.resolved(graph, instead)
        entries[_FOLDER] = str(external_data.ROOT)
    if signature.bytes > MAPPED and lean:
        entries["session.disable_prepacking"] = "1"
    if not locations and (signature.bytes > MAPPED or instead is not None):
        # Links resolved, as in the cache of Hugging Face: ONNX Runtime follows none out of a folder.
        real = graph.path.resolve()
        model = graph.content(real.name) if instead is None else external_data.moved(instead, real.name)
        entries[_FOLDER] = str(real.parent)
    where, longest = str(graph.path), isolated.longest(signature.bytes)
    number = next(_NUMBERS)
    inputs, outputs = isolated.ask(
        "open", number, model, threads, entries, longest=seconds or longest, where=where
    )
    return ModelSession(number=number, inputs=inputs, outputs=outputs, longest=longest, where=where)
