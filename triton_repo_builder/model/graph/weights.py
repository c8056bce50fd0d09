"""Weights of a model, one tensor at a time, and a model that is written with other ones.

The skeleton says where each tensor's bytes lie; they are mapped, so only the tensor at hand is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from triton_repo_builder.model.graph import reader, walk
from triton_repo_builder.model.read import skeleton, wire

LARGEST = 1_900_000_000
"""Bytes of weights in one file; protobuf ends at 2 GiB, and the graph needs some."""
SMALL = 1024
"""Bytes of a tensor that stays with the graph in any case: ONNX Runtime reads no shape from another file."""
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
"""Numbers of fields in onnx.proto: of a model, a graph and a tensor."""
DATA = ".data"
"""Suffix of the file with the weights of a larger model."""


@dataclass(frozen=True, kw_only=True)
class Deferred:
    """An initializer that is computed when it is written."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    compute: Callable[[], npt.NDArray[Any]]

    @property
    def nbytes(self) -> int:
        """Size of the numbers."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


Large = tuple[onnx.TensorProto, Callable[[], npt.NDArray[Any]]]
"""An initializer without its numbers, and a function that returns them."""


def array(tensor: onnx.TensorProto, folder: Path) -> npt.NDArray[Any]:
    """The numbers of an initializer of a model in ``folder``; mapped from the file if they are external."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        values: npt.NDArray[Any] = numpy_helper.to_array(tensor)
        return values
    entries = {entry.key: entry.value for entry in tensor.external_data}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    if count == 0:
        return np.zeros(tuple(tensor.dims), dtype)
    file, offset = folder / entries["location"], int(entries.get("offset", 0))
    flat = np.memmap(file, dtype=np.uint8, mode="r", offset=offset, shape=(count * dtype.itemsize,))
    mapped: npt.NDArray[Any] = flat.view(dtype).reshape(tuple(tensor.dims))
    return mapped


def save(
    model: onnx.ModelProto,
    path: Path,
    folder: Path,
    metadata: Mapping[str, str],
    added: Mapping[str, npt.NDArray[Any] | Deferred] | None = None,
) -> None:
    """Write the model with all its weights, and use it up; external weights are read from ``folder``.

    ``added`` are initializers by name. One tensor at a time is written, for protobuf would hold all of them
    twice; over ``LARGEST`` bytes they go to a file beside it.
    """
    add_metadata(model, metadata)
    small: list[onnx.TensorProto] = []
    large: list[Large] = []
    size = 0
    for tensor in model.graph.initializer:
        outside = tensor.data_location == onnx.TensorProto.EXTERNAL
        if not outside and len(tensor.raw_data) <= SMALL:
            small.append(tensor)
            continue
        values = array(tensor, folder)
        if values.nbytes <= SMALL:
            _inside(tensor, values.tobytes())
            small.append(tensor)
            continue
        size += values.nbytes
        large.append((_header(tensor.name, tensor.data_type, tensor.dims), partial(array, tensor, folder)))
    for name, new in (added or {}).items():
        compute = new.compute if isinstance(new, Deferred) else partial(np.asarray, new)
        if new.nbytes <= SMALL:
            small.append(numpy_helper.from_array(np.ascontiguousarray(compute()), name))
            continue
        kind = onnx.helper.np_dtype_to_tensor_dtype(new.dtype)
        size += new.nbytes
        large.append((_header(name, kind, new.shape), compute))
    kept = onnx.GraphProto(initializer=small)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept.initializer)
    if size > LARGEST:
        _save_beside(model, path, large)
    else:
        _save_whole(model, path, large)


def _header(name: str, kind: int, dims: Sequence[int]) -> onnx.TensorProto:
    return onnx.TensorProto(name=name, data_type=kind, dims=dims)


def _save_whole(model: onnx.ModelProto, path: Path, large: Sequence[Large]) -> None:
    """Write the message as protobuf would; only the order of the fields differs, which is free."""
    heads = [(header.SerializeToString(), values().nbytes) for header, values in large]
    tails = [wire.varint(RAW_DATA << 3 | wire.BYTES) + wire.varint(size) for _, size in heads]
    sizes = [len(head) + len(tail) + size for (head, size), tail in zip(heads, tails, strict=True)]
    fields = [wire.varint(INITIALIZER << 3 | wire.BYTES) + wire.varint(size) for size in sizes]
    body = model.graph.SerializeToString()
    model.ClearField("graph")
    whole = len(body) + sum(sizes) + sum(map(len, fields))
    with path.open("wb") as file:
        file.write(model.SerializeToString())
        file.write(wire.varint(GRAPH << 3 | wire.BYTES) + wire.varint(whole) + body)
        for field, (head, _), tail, (_, values) in zip(fields, heads, tails, large, strict=True):
            file.write(field + head + tail)
            np.ascontiguousarray(values()).tofile(file)


def add_metadata(model: onnx.ModelProto, metadata: Mapping[str, str]) -> None:
    """State these facts in ``metadata_props``; facts of the same names go."""
    kept = [entry for entry in model.metadata_props if entry.key not in metadata]
    kept += [onnx.StringStringEntryProto(key=key, value=value) for key, value in metadata.items()]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)


def note(path: Path, metadata: Mapping[str, str]) -> None:
    """Add facts to the model at ``path``; its weights stay where they are."""
    stated = {entry.key for entry in reader.load(skeleton.read(path)).metadata_props}
    if stated & metadata.keys():
        model = onnx.load(path, load_external_data=False)
        add_metadata(model, metadata)
        path.write_bytes(model.SerializeToString())
        return
    # Messages of protobuf that follow each other are one.
    addition = onnx.ModelProto()
    add_metadata(addition, metadata)
    with path.open("ab") as file:
        file.write(addition.SerializeToString())


def drop_unread(model: onnx.ModelProto) -> None:
    """Remove initializers that no node reads any more, in subgraphs as well."""
    used = {name for graph in walk.graphs(model.graph) for node in graph.node for name in node.input}
    used |= {value.name for value in (*model.graph.output, *model.graph.input)}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def halve(before: Path, after: Path) -> None:
    """Write the model with 16-bit floats; inputs, outputs and operators that overflow stay FP32."""
    from onnxruntime.transformers import float16

    model = float16.convert_float_to_float16(onnx.load(before), keep_io_types=True)
    onnx.save(model, after)


def _inside(tensor: onnx.TensorProto, data: bytes) -> None:
    tensor.raw_data = data
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _save_beside(model: onnx.ModelProto, path: Path, large: Sequence[Large]) -> None:
    data = path.with_name(path.name + DATA)
    offset = 0
    with data.open("wb") as file:
        for header, values in large:
            content = np.ascontiguousarray(values())
            content.tofile(file)
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(header)
            entries = {"location": data.name, "offset": str(offset), "length": str(content.nbytes)}
            tensor.external_data.extend(
                onnx.StringStringEntryProto(key=key, value=value) for key, value in entries.items()
            )
            tensor.data_location = onnx.TensorProto.EXTERNAL
            offset += content.nbytes
    path.write_bytes(model.SerializeToString())
