"""``batch_input`` and ``batch_output``: tensors that Triton's C++ backends derive from a batch's shapes.

https://github.com/triton-inference-server/server/blob/main/docs/user_guide/ragged_batching.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]
Make = Callable[[Sequence[Shape], Any], Array]

_DTYPES = {"TYPE_FP32": np.float32, "TYPE_INT32": np.int32}


def batch_inputs(config: Mapping[str, Any]) -> list[tuple[Sequence[str], str, Make, Any]]:
    """Per ``batch_input`` of the configuration: graph inputs to fill, source input, function and type."""
    return [
        (
            entry["target_name"],
            entry["source_input"][0],
            _KINDS[entry.get("kind", "BATCH_ELEMENT_COUNT")],
            _DTYPES[entry["data_type"]],
        )
        for entry in config.get("batch_input") or []
    ]


def batch_outputs(config: Mapping[str, Any]) -> dict[str, tuple[str, Shape]]:
    """Per scattered output: the input whose shape it takes, and its own dims, where -1 is taken over."""
    dims = {entry["name"]: tuple(int(dim) for dim in entry["dims"]) for entry in config["output"]}
    return {
        name: (entry["source_input"][0], dims[name])
        for entry in config.get("batch_output") or []
        for name in entry["target_name"]
        if name in dims
    }


def scatter(flat: Array, start: int, source: Shape, dims: Shape, batching: bool) -> tuple[Array, int]:
    """One request's part of a flat output, shaped like its input, and where the next part starts."""
    shape = (source[0], *dims) if batching else dims
    shape = tuple(source[axis] if dim == -1 else dim for axis, dim in enumerate(shape))
    end = start + prod(shape)
    return flat.reshape(-1)[start:end].reshape(shape), end


def _element_count(shapes: Sequence[Shape], dtype: Any) -> Array:
    return np.array([prod(shape) for shape in shapes], dtype)


def _accumulated(shapes: Sequence[Shape], dtype: Any) -> Array:
    return np.cumsum([prod(shape) for shape in shapes]).astype(dtype)


def _accumulated_with_zero(shapes: Sequence[Shape], dtype: Any) -> Array:
    return np.cumsum([0, *(prod(shape) for shape in shapes)]).astype(dtype)


def _max_as_shape(shapes: Sequence[Shape], dtype: Any) -> Array:
    return np.zeros(max(prod(shape) for shape in shapes), dtype)


def _item_shape(shapes: Sequence[Shape], dtype: Any) -> Array:
    """One row per batch item: a request of n rows contributes n equal rows."""
    return np.repeat(np.array([shape[1:] for shape in shapes], dtype), [shape[0] for shape in shapes], axis=0)


def _item_shape_flatten(shapes: Sequence[Shape], dtype: Any) -> Array:
    return _item_shape(shapes, dtype).reshape(-1)


_KINDS: dict[str, Make] = {
    "BATCH_ELEMENT_COUNT": _element_count,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": _accumulated,
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": _accumulated_with_zero,
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": _max_as_shape,
    "BATCH_ITEM_SHAPE": _item_shape,
    "BATCH_ITEM_SHAPE_FLATTEN": _item_shape_flatten,
}
