"""Tensors in the protocol's two encodings: plain JSON, and a JSON header with raw tensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.dtypes import BY_WIRE
from triton_repo_builder.base.files import DAMAGED
from triton_repo_builder.run.client.values import BROKEN, JSON, Body, RequestFailed, document, understood

Array = npt.NDArray[Any]


def wire_type(array: Array) -> str:
    """The protocol's name of an array's element type."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    return next(
        wire for wire, dtype in BY_WIRE.items() if wire != "BYTES" and np.dtype(dtype.numpy) == array.dtype
    )


def encode_json(inputs: Mapping[str, Array]) -> Body:
    """A request in plain JSON, as one would write it for ``curl``. FP16 cannot travel so."""
    document = {
        "inputs": [
            {"name": name, "datatype": wire_type(array), "shape": list(array.shape), "data": _plain(array)}
            for name, array in inputs.items()
        ]
    }
    return Body(data=json.dumps(document, ensure_ascii=False).encode(), headers=JSON)


def encode_binary(inputs: Mapping[str, Array]) -> Body:
    """A request of a JSON header and raw tensors, both ways (the protocol's binary extension)."""
    tensors = {name: raw_tensor(array) for name, array in inputs.items()}
    header = json.dumps(
        {
            "parameters": {"binary_data_output": True},
            "inputs": [
                {
                    "name": name,
                    "datatype": wire_type(array),
                    "shape": list(array.shape),
                    "parameters": {"binary_data_size": len(tensors[name])},
                }
                for name, array in inputs.items()
            ],
        }
    ).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }
    return Body(data=header + b"".join(tensors.values()), headers=headers)


def _plain(array: Array) -> list[Any]:
    flat = array.reshape(-1).tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in flat]


def raw_tensor(array: Array) -> bytes:
    """The protocol's raw form: little-endian elements, each string after its length in four bytes."""
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array).tobytes()
    return b"".join(struct.pack("<I", len(text)) + text for text in array.reshape(-1).tolist())


def decode(data: bytes, header: int) -> dict[str, Array]:
    """Outputs of an answer whose first ``header`` bytes are JSON; raw tensors follow."""
    tail = data[header:]
    outputs: dict[str, Array] = {}
    with understood():
        listed = [(dict(output), _size(output)) for output in document(data[:header]).get("outputs", ())]
    for output, size in listed:
        try:
            if size is None:
                outputs[output["name"]] = _array(output["datatype"], output["shape"], output["data"])
            else:
                outputs[output["name"]] = from_raw(output["datatype"], output["shape"], tail[:size])
                tail = tail[size:]
        except (*DAMAGED, struct.error) as error:
            message = f"output {output.get('name')!r} cannot be decoded: {error}"
            raise RequestFailed(BROKEN, "200", message) from None
    return outputs


def _size(output: Mapping[str, Any]) -> int | None:
    size: int | None = output.get("parameters", {}).get("binary_data_size")
    if size is not None and (not isinstance(size, int) or size < 0):
        raise ValueError(f"binary_data_size is {size!r:.40}")
    return size


def _array(datatype: str, shape: Sequence[int], values: Sequence[Any]) -> Array:
    if datatype == "BYTES":
        texts = np.empty(len(values), dtype=object)
        texts[:] = [str(value).encode() for value in values]
        return texts.reshape(tuple(shape))
    return np.array(values, dtype=BY_WIRE[datatype].numpy).reshape(tuple(shape))


def from_raw(datatype: str, shape: Sequence[int], data: bytes) -> Array:
    """A tensor of the protocol's raw form. Raises ValueError or struct.error for bytes that are none."""
    if datatype != "BYTES":
        return np.frombuffer(data, dtype=BY_WIRE[datatype].numpy).reshape(tuple(shape))
    texts: list[bytes] = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        texts.append(data[4 : 4 + length])
        data = data[4 + length :]
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array.reshape(tuple(shape))
