"""Golden cases: inputs, and the answers that the original model gave at build time (``smoke.json``).

A case is one row of one request. Large tensors are not spelled out: an input may be a ``pattern`` (a
formula over the element's index), an output may be given at some ``indices`` only.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import files
from triton_repo_builder.base.dtypes import BY_WIRE, pattern

SCHEMA = 1
LARGE = 4096
"""Tensors of more elements than this are written as a pattern (inputs) or sampled (outputs)."""
SAMPLES = 256
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()[:10]
MOST = 1 << 26
"""Limit of elements of a tensor, and of a row's inputs together: a file may state any shape."""


@dataclass(frozen=True, kw_only=True)
class CaseTensor:
    """One tensor of a case; its shape includes the batch axis if the endpoint has one."""

    name: str
    datatype: str
    """Wire name, e.g. ``FP32``, ``BYTES``."""
    shape: tuple[int, ...]
    data: tuple[Any, ...] = ()
    """Flat values in C order; with ``indices``, the values at those flat positions. Strings are str, what is
    no text is bytes (base64 in the file)."""
    pattern: int | None = None
    indices: tuple[int, ...] | None = None
    at: str = ""
    """The tensor that holds the key of each value here: what is not listed is 0, a key below 0 is padding."""

    def array(self) -> npt.NDArray[Any]:
        """The whole tensor; object array of bytes for BYTES. Not for sampled outputs."""
        if self.pattern is not None:
            return pattern(self.shape, self.datatype, self.pattern)
        if self.datatype == "BYTES":
            values = np.empty(len(self.data), dtype=object)
            values[:] = [item if isinstance(item, bytes) else str(item).encode() for item in self.data]
            return values.reshape(self.shape)
        return np.array(self.data, dtype=BY_WIRE[self.datatype].numpy).reshape(self.shape)

    @property
    def binary(self) -> bool:
        """Whether it holds bytes that are not text, such as images: JSON strings cannot carry them."""
        return any(isinstance(item, bytes) for item in self.data)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request and the original model's answer to it."""

    name: str
    inputs: tuple[CaseTensor, ...]
    outputs: tuple[CaseTensor, ...]
    group: str = ""
    """Cases of one group can be rows of one request: their files become inputs of equal shapes."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Largest absolute difference allowed to a recorded number: alone, and inside a batch."""

    alone: float
    batched: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """The golden cases of one endpoint."""

    endpoint: str
    recorded_with: str
    tolerance: Tolerance
    cases: tuple[Case, ...]


def record(name: str, datatype: str, array: npt.NDArray[Any]) -> CaseTensor:
    """An output as a case tensor, sampled at SAMPLES fixed positions if it is large."""
    flat = array.reshape(-1)
    indices = None
    if flat.size > LARGE:
        indices = tuple(int(i) for i in np.linspace(0, flat.size - 1, SAMPLES).astype(np.int64))
        flat = flat[list(indices)]
    # str gives the fewest digits that still name this float32; tolist would print it as a float64.
    exact = flat.dtype.kind != "f"
    data = (
        tuple(_plain(value) for value in flat.tolist())
        if exact
        else tuple(float(str(value)) for value in flat)
    )
    return CaseTensor(name=name, datatype=datatype, shape=tuple(array.shape), data=data, indices=indices)


def unbatched(case: Case) -> Case:
    """The case without its batch axis, for an endpoint that has none."""
    return replace(case, inputs=tuple(replace(tensor, shape=tensor.shape[1:]) for tensor in case.inputs))


def difference(expected: CaseTensor, actual: npt.NDArray[Any]) -> float:
    """Largest absolute difference; inf if shape, a string or a NaN/infinity pattern differs."""
    if tuple(actual.shape) != expected.shape:
        return float("inf")
    flat = actual.reshape(-1)
    if expected.indices is not None:
        flat = flat[list(expected.indices)]
    if expected.datatype == "BYTES":
        pairs = zip(expected.data, [_plain(value) for value in flat.tolist()], strict=True)
        texts = (0.0 if left == right else _text_difference(left, right) for left, right in pairs)
        return max(texts, default=0.0)
    if flat.dtype.kind not in "fiub":
        return float("inf")
    # Through the tensor's own type: a float32 printed in decimals is another number if read as float64.
    data = np.array(expected.data, dtype=BY_WIRE[expected.datatype].numpy).astype(np.float64)
    got = flat.astype(np.float64)
    if not data.size:
        return 0.0
    finite = np.isfinite(data)
    if not np.array_equal(data[~finite], got[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    return float(np.max(np.abs(data[finite] - got[finite]), initial=0.0))


def among(
    outputs: Sequence[CaseTensor], expected: CaseTensor, answer: Mapping[str, npt.NDArray[Any]]
) -> float:
    """``difference`` of one output; sparse outputs are compared by key, not by position."""
    if not expected.at:
        return difference(expected, answer[expected.name])
    keys = next(tensor for tensor in outputs if tensor.name == expected.at)
    recorded = {
        int(key): float(value) for key, value in zip(keys.data, expected.data, strict=True) if key >= 0
    }
    flat = (answer[name].reshape(-1).tolist() for name in (expected.at, expected.name))
    got = {int(key): float(value) for key, value in zip(*flat, strict=False) if key >= 0}
    # If an output is recorded at some places only, its other entries are unknown.
    compared = recorded.keys() if expected.indices is not None else recorded.keys() | got.keys()
    return max((abs(recorded.get(key, 0.0) - got.get(key, 0.0)) for key in compared), default=0.0)


def _text_difference(expected: Any, got: Any) -> float:
    """Largest difference of two JSON texts that are equal except for their numbers; inf for other strings.

    Of two PNG files in base64 (label maps) the share of pixels that differ.
    """
    if str(expected).startswith(PNG) and str(got).startswith(PNG):
        return _pixels_difference(expected, got)
    if not (str(expected).startswith(("[", "{")) and str(got).startswith(("[", "{"))):
        return float("inf")
    try:
        return _values_difference(json.loads(expected), json.loads(got))
    except ValueError:
        return float("inf")


def _pixels_difference(expected: str, got: str) -> float:
    from PIL import Image  # slow to import, and few endpoints answer with images

    try:
        files = (Image.open(io.BytesIO(base64.b64decode(text, validate=True))) for text in (expected, got))
        ours, theirs = (np.asarray(file) for file in files)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return float("inf")
    return float((ours != theirs).mean()) if ours.shape == theirs.shape else float("inf")


def _values_difference(expected: Any, got: Any) -> float:
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        return max((_values_difference(expected[key], got[key]) for key in expected), default=0.0)
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return max(
            (_values_difference(left, right) for left, right in zip(expected, got, strict=True)), default=0.0
        )
    if isinstance(expected, float) and isinstance(got, float):
        return abs(expected - got)
    return 0.0 if type(expected) is type(got) and expected == got else float("inf")


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def dump(file: CaseFile) -> str:
    """The text of ``smoke.json``."""
    head = {
        "schema": SCHEMA,
        "endpoint": file.endpoint,
        "recorded_with": file.recorded_with,
        "tolerance": {
            "alone": file.tolerance.alone,
            "batched": file.tolerance.batched,
            "reason": file.tolerance.reason,
        },
    }
    body = ",\n".join(_dump_case(case) for case in file.cases)
    return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "cases": [\n{body}\n ]\n}}\n'


def _dump_case(case: Case) -> str:
    """One tensor a line, so that a diff shows which answer changed."""

    def lines(tensors: tuple[CaseTensor, ...]) -> str:
        return ",\n".join("    " + json.dumps(_dump_tensor(tensor), ensure_ascii=False) for tensor in tensors)

    name = json.dumps(case.name, ensure_ascii=False)
    name += f', "group": {json.dumps(case.group)}' if case.group else ""
    return (
        f'  {{"name": {name},\n   "inputs": [\n{lines(case.inputs)}\n   ],\n'
        f'   "outputs": [\n{lines(case.outputs)}\n   ]}}'
    )


def _dump_tensor(tensor: CaseTensor) -> dict[str, Any]:
    document: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if tensor.pattern is not None:
        return document | {"pattern": tensor.pattern}
    if tensor.indices is not None:
        document["indices"] = list(tensor.indices)
    if tensor.at:
        document["at"] = tensor.at
    return document | {"data": [_dump_value(value) for value in tensor.data]}


def _dump_value(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _load_value(value: Any) -> Any:
    return base64.b64decode(value["base64"], validate=True) if isinstance(value, dict) else value


def load(path: Path) -> CaseFile:
    """Read ``smoke.json``; raises ValueError if it is not one of ours."""
    document = files.load_json(files.read(path))
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")
    if document.get("schema", SCHEMA) != SCHEMA:
        raise ValueError(f"has schema {document['schema']}, this trb reads {SCHEMA}")
    try:
        return _load_file(document)
    except KeyError as error:
        raise ValueError(f"lacks the field {error}") from None
    except binascii.Error as error:
        raise ValueError(f"has data that is not base64: {error}") from None
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"has a field of a wrong type: {error}") from None


def _load_file(document: Mapping[str, Any]) -> CaseFile:
    cases = tuple(
        Case(
            name=_text(case["name"]),
            inputs=tuple(_load_tensor(tensor) for tensor in case["inputs"]),
            outputs=tuple(_load_tensor(tensor) for tensor in case["outputs"]),
            group=_text(case.get("group", "")),
        )
        for case in document["cases"]
    )
    stated = document["tolerance"]
    tolerance = Tolerance(
        alone=_number(stated["alone"]), batched=_number(stated["batched"]), reason=_text(stated["reason"])
    )
    for case in cases:
        if sum(math.prod(tensor.shape) for tensor in case.inputs) > MOST:
            raise ValueError(f"has inputs of more than {MOST:,} elements")
        for tensor in case.outputs:
            _check_keys(case, tensor)
    return CaseFile(
        endpoint=_text(document["endpoint"]),
        recorded_with=_text(document["recorded_with"]),
        tolerance=tolerance,
        cases=cases,
    )


def _load_tensor(document: Mapping[str, Any]) -> CaseTensor:
    indices, seed = document.get("indices"), document.get("pattern")
    tensor = CaseTensor(
        name=_text(document["name"]),
        datatype=_text(document["datatype"]),
        shape=tuple(map(_whole, document["shape"])),
        data=tuple(_load_value(value) for value in document.get("data", ())),
        pattern=None if seed is None else _whole(seed),
        indices=None if indices is None else tuple(map(_whole, indices)),
        at=_text(document.get("at", "")),
    )
    _check(tensor)
    return tensor


def _check(tensor: CaseTensor) -> None:
    """Raise ValueError for a tensor whose fields contradict each other."""
    size, wire_type = math.prod(tensor.shape), BY_WIRE.get(tensor.datatype)
    if wire_type is None or size > MOST:
        raise ValueError(f"has a tensor of type {tensor.datatype:.40} and shape {tensor.shape!s:.60}")
    if tensor.pattern is not None:
        return
    places = tensor.indices if tensor.indices is not None else range(size)
    if len(places) != len(tensor.data) or any(place >= size for place in tensor.indices or ()):
        raise ValueError(f"has {len(tensor.data)} values of '{tensor.name:.40}', shape {tensor.shape!s:.60}")
    kinds = (str, bytes) if tensor.datatype == "BYTES" else (int, float)
    if not all(isinstance(value, kinds) for value in tensor.data):
        raise ValueError(f"has values of '{tensor.name:.40}' that are not {tensor.datatype}")
    if tensor.datatype != "BYTES":
        np.array(tensor.data, dtype=wire_type.numpy)


def _check_keys(case: Case, tensor: CaseTensor) -> None:
    """Raise ValueError if the tensor with the keys of this one's values is missing or does not match."""
    if not tensor.at:
        return
    keys = [other.data for other in case.outputs if other.name == tensor.at]
    if len(keys) != 1 or len(keys[0]) != len(tensor.data) or not all(isinstance(key, int) for key in keys[0]):
        raise ValueError(f"has no key for each value of '{tensor.name:.40}'")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"{value!r:.40} is not a number from 0 on")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40} is not a number")
    return float(value)
