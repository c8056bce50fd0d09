"""PyTorch's own answers to the golden inputs, which ``trb convert`` recorded from the original weights.

They replace what ONNX Runtime says of the converted file: golden cases made from them prove the conversion,
too. A run is found by a digest of its inputs, so that the same options give the same answers.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import conversion
from triton_repo_builder.repository.manifest import Conversion

NAMES = "names"
"""The array with the names of the outputs, in the graph's order, as JSON in bytes."""
Arrays = Mapping[str, npt.NDArray[Any]]


def key(feeds: Arrays) -> str:
    """Digest of a run's inputs: names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(feeds):
        array = np.ascontiguousarray(feeds[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class PyTorchAnswers:
    """The answers of a folder."""

    names: Sequence[str]
    runs: Mapping[str, Sequence[npt.NDArray[Any]]]
    """Outputs in the order of ``names``, by ``key``."""
    about: str
    """Tool, version and weights."""
    missed: list[str] = field(default_factory=list)
    """Keys of runs that PyTorch was not asked about."""

    def of(self, feeds: Arrays, outputs: Sequence[str] | None) -> list[Any] | None:
        """The outputs of a run, as ``InferenceSession.run`` gives them; None, and noted, without."""
        digest = key(feeds)
        values = self.runs.get(digest)
        if values is None:
            self.missed.append(digest)
            return None
        by_name = dict(zip(self.names, values, strict=True))
        return [by_name[name] for name in (outputs or self.names)]

    @property
    def note(self) -> str:
        """A note if some answers are not PyTorch's; empty else."""
        if not self.missed:
            return ""
        return (
            f"{len(set(self.missed))} runs of the golden cases are not in {conversion.ANSWERS}, since other "
            "options than those of trb convert change their inputs: their answers are the converted file's"
        )


def read(folder: Path, converted: Conversion) -> PyTorchAnswers:
    """The answers that are in a converted folder. Raises ``TrbError`` GOLDEN_FAILED."""
    file = containment.within(folder, conversion.ANSWERS)
    try:
        if file is None or not files.is_file(file):
            raise FileNotFoundError
        with np.load(file, allow_pickle=False) as archive:
            names = json.loads(bytes(archive[NAMES]))
            runs: dict[str, list[npt.NDArray[Any]]] = {}
            for entry in archive.files:
                digest, _, number = entry.partition(".")
                if number:
                    runs.setdefault(digest, [np.zeros(0)] * len(names))[int(number)] = archive[entry]
    except (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile):
        message = f"{conversion.ANSWERS}, PyTorch's answers that trb convert recorded, is missing or damaged"
        remedy = f"{conversion.AGAIN}; or build with --no-golden"
        raise TrbError(Code.GOLDEN_FAILED, message, where=str(folder), remedy=remedy) from None
    weights = ", ".join(sorted(converted.weights))
    return PyTorchAnswers(names, runs, f"PyTorch {converted.tools.get('torch', '')} (CPU) on {weights}")


def content(names: Sequence[str], runs: Mapping[str, Sequence[npt.NDArray[Any]]]) -> dict[str, Any]:
    """The arrays of the file."""
    listed = np.frombuffer(json.dumps(list(names)).encode(), dtype=np.uint8)
    numbered = {f"{digest}.{n}": value for digest, values in runs.items() for n, value in enumerate(values)}
    return {NAMES: listed, **numbered}
