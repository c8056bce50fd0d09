"""Small corrections of a graph that keep its answers: an open batch axis, an older IR version, no ZipMap.

Each returns the corrected file, or None if the correction would not be safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from triton_repo_builder.base import files
from triton_repo_builder.base.dtypes import pattern
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.model.graph import isolated, reader, session
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.signature import ModelSignature

LARGEST = 256 << 20
"""Bytes of a file that is rewritten as a whole; larger ones are left to their author."""
OPEN = 8
"""Size for every open axis of a trial input."""
TOLERANCE = 1e-4
AXIS = "batch"
SEED = 2_654_435_769


def lowered(path: Path, ir_version: int) -> bytes | None:
    """The file with an IR version that a release reads. Weights and nodes stay as they are."""
    model = _whole(path)
    if model is None or model.ir_version <= ir_version:
        return None
    model.ir_version = ir_version
    return bytes(model.SerializeToString())


def without_zipmap(path: Path) -> bytes | None:
    """The file with the scores that a ZipMap turned into dictionaries as an output of their own."""
    model = _whole(path)
    maps = [node for node in model.graph.node if node.op_type == "ZipMap"] if model else []
    if model is None or len(maps) != 1 or len(maps[0].input) != 1 or len(maps[0].output) != 1:
        return None
    (source,), (name,) = maps[0].input, maps[0].output
    classes = max(
        len(attribute.ints) or len(attribute.strings)
        for attribute in maps[0].attribute
        if attribute.name.startswith("classlabels")
    )
    model.graph.node.remove(maps[0])
    for node in model.graph.node:
        for outputs in (node.output, node.input):
            for place, each in enumerate(outputs):
                if each == source:
                    outputs[place] = name
    for value in model.graph.output:
        if value.name == name:
            value.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [AXIS, classes]))
    return bytes(model.SerializeToString())


def opened(path: Path) -> bytes | None:
    """The file with an open first axis on all inputs and outputs, if its rows then answer as they did.

    Two rows in one run must equal the same rows in the untouched file, and every output must have two rows.
    """
    signature = reader.read_signature(path)
    model = _whole(path)
    specs = (*signature.inputs, *signature.outputs)
    if model is None or any(not spec.shape for spec in specs):
        return None
    fixed = {spec.shape[0] for spec in signature.inputs if spec.shape and isinstance(spec.shape[0], int)}
    if len(fixed) > 1:
        return None
    size = fixed.pop() if fixed else 1
    feeds = inputs(signature, max(size, 2))
    stated = {value.name for value in model.graph.input} - {item.name for item in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output):
        if value.name in stated or value in model.graph.output:
            value.type.tensor_type.shape.dim[0].Clear()
            value.type.tensor_type.shape.dim[0].dim_param = AXIS
    del model.graph.value_info[:]
    content = bytes(model.SerializeToString())
    try:
        original = session.load(skeleton.read(path), signature)
        changed = session.load(skeleton.read(path), signature, instead=model)
        joint = changed.run(None, {name: rows[:2] for name, rows in feeds.items()})
        if size > 1:
            alone = [[each[place : place + 1] for each in original.run(None, feeds)] for place in range(2)]
        else:
            alone = [
                original.run(None, {name: rows[place : place + 1] for name, rows in feeds.items()})
                for place in range(2)
            ]
    except (isolated.Failed, TrbError):
        return None
    return content if difference(alone, joint) <= TOLERANCE else None


def mixing(path: Path) -> tuple[str, float] | None:
    """An output that changes, or has other rows, if a second row is beside the first; None if none does.

    Raises ``TrbError`` if the graph cannot be run.
    """
    signature = reader.read_signature(path)
    if not signature.batch.possible:
        return None
    feeds = inputs(signature, 2)
    try:
        loaded = session.load(skeleton.read(path), signature)
        joint = loaded.run(None, feeds)
        alone = [
            loaded.run(None, {name: rows[place : place + 1] for name, rows in feeds.items()})
            for place in range(2)
        ]
    except isolated.Failed:
        return None
    for index, name in enumerate(loaded.outputs):
        worst = difference([[each[index]] for each in alone], [joint[index]])
        if worst > TOLERANCE:
            return name, worst
    return None


def inputs(signature: ModelSignature, rows: int) -> Mapping[str, Any]:
    """Trial inputs with unlike rows; masks are ones."""
    feeds: dict[str, Any] = {}
    for spec in signature.inputs:
        shape = (rows, *(dim if isinstance(dim, int) else OPEN for dim in (spec.shape or ())[1:]))
        if "mask" in spec.name.lower():
            feeds[spec.name] = np.ones(shape, spec.dtype.numpy)
        elif spec.dtype.wire == "BYTES":
            feeds[spec.name] = np.array(["a", "b"] * rows, dtype=object)[: int(np.prod(shape))].reshape(shape)
        else:
            feeds[spec.name] = pattern(shape, spec.dtype.wire, SEED)
    return feeds


def difference(alone: Sequence[Sequence[Any]], joint: Sequence[Any]) -> float:
    """Largest difference of the rows, relative to the largest number; infinite for other shapes."""
    worst = 0.0
    for index, output in enumerate(joint):
        joined = np.concatenate([each[index] for each in alone]) if _stack(alone, index) else None
        if joined is None or joined.shape != output.shape:
            return float("inf")
        if joined.dtype.kind not in "fc":
            worst = max(worst, float("inf") if (joined != output).any() else 0.0)
            continue
        scale = float(np.abs(joined).max(initial=0.0)) or 1.0
        worst = max(worst, float(np.abs(joined - output).max(initial=0.0)) / scale)
    return worst


def _stack(alone: Sequence[Sequence[Any]], index: int) -> bool:
    arrays = [each[index] for each in alone]
    return all(isinstance(array, np.ndarray) and array.ndim and len(array) == 1 for array in arrays)


def _whole(path: Path) -> onnx.ModelProto | None:
    """The file as a message, its external data left where they are; None if it is large."""
    if path.stat().st_size > LARGEST:
        return None
    return onnx.load_from_string(files.read(path, LARGEST))
