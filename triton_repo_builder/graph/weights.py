"""Weights of a model, one tensor at a time, and a model that is written with other ones.

The skeleton says where each tensor's bytes lie; they are mapped, so only the tensor at hand is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

LARGEST = 1_900_000_000
"""Bytes of weights in one file; protobuf ends at 2 GiB, and the graph needs some."""
SMALL = 1024
"""Bytes of a tensor that stays with the graph in any case: ONNX Runtime reads no shape from another file."""
DATA = ".data"
"""Suffix of the file with the weights of a larger model."""


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


def save(model: onnx.ModelProto, path: Path, folder: Path, metadata: Mapping[str, str]) -> None:
    """Write the model with all its weights to ``path``; those that are external lie in ``folder``.

    Over ``LARGEST`` bytes they go to a file beside it.
    """
    add_metadata(model, metadata)
    size = sum(
        len(tensor.raw_data)
        if tensor.data_location != onnx.TensorProto.EXTERNAL
        else array(tensor, folder).nbytes
        for tensor in model.graph.initializer
    )
    if size > LARGEST:
        _save_beside(model, path, folder)
        return
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _inside(tensor, array(tensor, folder).tobytes())
    path.write_bytes(model.SerializeToString())


def add_metadata(model: onnx.ModelProto, metadata: Mapping[str, str]) -> None:
    """State these facts in ``metadata_props``; facts of the same names go."""
    kept = [entry for entry in model.metadata_props if entry.key not in metadata]
    kept += [onnx.StringStringEntryProto(key=key, value=value) for key, value in metadata.items()]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)


def note(path: Path, metadata: Mapping[str, str]) -> None:
    """Add facts to the model at ``path``; its weights stay where they are."""
    model = onnx.load(path, load_external_data=False)
    add_metadata(model, metadata)
    path.write_bytes(model.SerializeToString())


def halve(before: Path, after: Path) -> None:
    """Write the model with 16-bit floats; inputs, outputs and operators that overflow stay FP32."""
    from onnxruntime.transformers import float16

    model = float16.convert_float_to_float16(onnx.load(before), keep_io_types=True)
    onnx.save(model, after)


def _inside(tensor: onnx.TensorProto, data: bytes) -> None:
    tensor.raw_data = data
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _save_beside(model: onnx.ModelProto, path: Path, folder: Path) -> None:
    data = path.with_name(path.name + DATA)
    offset = 0
    with data.open("wb") as file:
        for tensor in model.graph.initializer:
            values = array(tensor, folder)
            if values.nbytes <= SMALL:
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    _inside(tensor, values.tobytes())
                continue
            np.ascontiguousarray(values).tofile(file)
            entries = {"location": data.name, "offset": str(offset), "length": str(values.nbytes)}
            tensor.ClearField("raw_data")
            del tensor.external_data[:]
            tensor.external_data.extend(
                onnx.StringStringEntryProto(key=key, value=value) for key, value in entries.items()
            )
            tensor.data_location = onnx.TensorProto.EXTERNAL
            offset += values.nbytes
    path.write_bytes(model.SerializeToString())
