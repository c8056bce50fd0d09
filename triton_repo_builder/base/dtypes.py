"""The one table of element types: ONNX ↔ Triton config ↔ wire protocol ↔ numpy.

Sources: ``TensorProto.DataType`` in onnx.proto; ``inference.DataType`` in Triton's model_config.proto;
the type names of the KServe v2 protocol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class DType:
    """One element type under its four names; ``size`` is bytes per element, 0 for strings."""

    onnx: int
    name: str
    size: int
    numpy: str
    config: str = ""
    wire: str = ""

    @property
    def servable(self) -> bool:
        """Whether Triton's onnxruntime backend accepts the type as an input or output."""
        return bool(self.config)


def _served(onnx: int, name: str, size: int, numpy: str, triton: str) -> DType:
    config = "TYPE_STRING" if triton == "BYTES" else f"TYPE_{triton}"
    return DType(onnx=onnx, name=name, size=size, numpy=numpy, config=config, wire=triton)


ALL: tuple[DType, ...] = (
    _served(1, "float", 4, "float32", "FP32"),
    _served(2, "uint8", 1, "uint8", "UINT8"),
    _served(3, "int8", 1, "int8", "INT8"),
    _served(4, "uint16", 2, "uint16", "UINT16"),
    _served(5, "int16", 2, "int16", "INT16"),
    _served(6, "int32", 4, "int32", "INT32"),
    _served(7, "int64", 8, "int64", "INT64"),
    _served(8, "string", 0, "object", "BYTES"),
    _served(9, "bool", 1, "bool", "BOOL"),
    _served(10, "float16", 2, "float16", "FP16"),
    _served(11, "double", 8, "float64", "FP64"),
    _served(12, "uint32", 4, "uint32", "UINT32"),
    _served(13, "uint64", 8, "uint64", "UINT64"),
    DType(onnx=14, name="complex64", size=8, numpy="complex64"),
    DType(onnx=15, name="complex128", size=16, numpy="complex128"),
    DType(onnx=16, name="bfloat16", size=2, numpy=""),
    DType(onnx=17, name="float8e4m3fn", size=1, numpy=""),
    DType(onnx=18, name="float8e4m3fnuz", size=1, numpy=""),
    DType(onnx=19, name="float8e5m2", size=1, numpy=""),
    DType(onnx=20, name="float8e5m2fnuz", size=1, numpy=""),
    DType(onnx=21, name="uint4", size=1, numpy=""),
    DType(onnx=22, name="int4", size=1, numpy=""),
    DType(onnx=23, name="float4e2m1", size=1, numpy=""),
)

BY_ONNX = {dtype.onnx: dtype for dtype in ALL}
BY_CONFIG = {dtype.config: dtype for dtype in ALL if dtype.config}
BY_WIRE = {dtype.wire: dtype for dtype in ALL if dtype.wire}
BY_NAME = {dtype.name: dtype for dtype in ALL}

FP32 = BY_NAME["float"]
FP16 = BY_NAME["float16"]
INT32 = BY_NAME["int32"]
INT64 = BY_NAME["int64"]
STRING = BY_NAME["string"]


PIECE = 1 << 20
"""Elements of a pattern that are computed at a time: each takes five times eight bytes meanwhile."""
HALF = (10, 16)
"""The ONNX element types of floats in 16 bits."""


def from_onnx(number: int) -> DType:
    """The type with this ONNX number; one made up for a number newer than this table."""
    return BY_ONNX.get(number) or DType(onnx=number, name=f"onnx type {number}", size=1, numpy="")


def pattern(shape: tuple[int, ...], datatype: str, seed: int) -> NDArray[Any]:
    """A tensor that any program can make again: u = ((i * 2654435761 + seed) mod 2**32) / 2**32.

    Floating types take u, uniform in [0, 1); integer types floor(2u), bool u >= 0.5. The multiplier is
    Knuth's (The Art of Computer Programming, vol. 3, 6.4).
    """
    import numpy as np  # with the first tensor only: most users of this table need none

    count = math.prod(shape)
    tensor = np.empty(count, dtype=BY_WIRE[datatype].numpy)
    for begin in range(0, count, PIECE):
        index = np.arange(begin, min(begin + PIECE, count), dtype=np.uint64)
        unit = ((index * np.uint64(2654435761) + np.uint64(seed)) % np.uint64(2**32)).astype(np.float64)
        unit /= 2.0**32
        if datatype == "BYTES":
            tensor[begin : begin + PIECE] = [b"a" if u < 0.5 else b"b" for u in unit]
        else:
            tensor[begin : begin + PIECE] = unit if tensor.dtype.kind == "f" else np.floor(unit * 2)
    return tensor.reshape(shape)
