"""Inputs and outputs of an open session, in Triton's terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triton_repo_builder.runtime.onnxruntime_backend import ort_rules
    from triton_repo_builder.runtime.onnxruntime_backend.ort_errors import UNSUPPORTED, Refused
else:
    import ort_rules
    from ort_errors import UNSUPPORTED, Refused

TYPES = {
    "tensor(float)": "TYPE_FP32",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(int8)": "TYPE_INT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(string)": "TYPE_STRING",
    "tensor(bool)": "TYPE_BOOL",
    "tensor(float16)": "TYPE_FP16",
    "tensor(double)": "TYPE_FP64",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
}
_KINDS = {
    "tensor": "TENSOR",
    "seq": "SEQUENCE",
    "map": "MAP",
    "opaque": "OPAQUE",
    "sparse_tensor": "SPARSETENSOR",
}


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """One input or output: ``type`` is empty where Triton has none; an unstated rank reads as a scalar."""

    name: str
    type: str
    dims: tuple[int, ...]


def tensor_infos(nodes: Iterable[Any]) -> dict[str, TensorInfo]:
    """``session.get_inputs()`` and the like, by name; sequences and maps are refused."""
    infos = {}
    for node in nodes:
        kind = node.type.partition("(")[0]
        if message := ort_rules.kind(node.name, _KINDS.get(kind, "UNKNOWN")):
            raise Refused(message, UNSUPPORTED)
        dims = tuple(dim if isinstance(dim, int) else -1 for dim in node.shape)
        infos[node.name] = TensorInfo(name=node.name, type=TYPES.get(node.type, ""), dims=dims)
    return infos
