"""Sizes of tensors by name, also of shapes that a graph computes, which ONNX's own inference loses.

A size is a number, a name (two sizes of one name are equal, whatever the inputs), or None. The values of a
tensor that holds sizes are an array of sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Size = int | str | None
Dims = tuple[Size, ...]
Values = npt.NDArray[Any]
"""An array; its dtype is object if it contains a name or None."""
SMALL = 64
"""Numbers of a tensor whose values are followed."""
_KEEPS = {
    "Abs", "Cast", "Ceil", "Clip", "CumSum", "DequantizeLinear", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "HardSwish", "Identity", "IsNaN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax",
    "Mish", "Neg", "Not", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Softmax",
    "Softplus", "Softsign", "Sqrt", "Tanh", "Trilu",
}  # fmt: skip
_BROADCASTS = {
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul",
    "Or", "Pow", "Sub", "Sum", "Where",
}  # fmt: skip
_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Sqrt": np.sqrt, "Neg": np.negative,
}  # fmt: skip
_TYPES = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32}


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of an attribute."""
    return next((helper.get_attribute_value(at) for at in node.attribute if at.name == name), default)


def axes(node: onnx.NodeProto, index: int, values: Mapping[str, Values]) -> list[int] | None:
    """Axes, an attribute that later operator sets have as input ``index``; None if they are not known."""
    stated = attribute(node, "axes", None)
    if stated is not None:
        return [int(axis) for axis in stated]
    tensor = values.get(node.input[index]) if len(node.input) > index else None
    return None if tensor is None or _names(tensor) else [int(axis) for axis in tensor.reshape(-1)]


def of_output(node: onnx.NodeProto, dims: Mapping[str, Dims], values: Mapping[str, Values]) -> Dims | None:
    """The sizes of the first output; None if they do not follow from the sizes of the inputs."""
    kind = node.op_type
    first = dims.get(node.input[0]) if node.input else None
    if kind == "Range":
        return _counted([values.get(name) for name in node.input])
    if kind == "ConstantOfShape":
        shape = values.get(node.input[0])
        return None if shape is None or _names(shape) else tuple(map(int, shape.reshape(-1)))
    if kind in _BROADCASTS:
        return _broadcast([dims.get(name) for name in node.input])
    if first is None:
        return None
    if kind in _KEEPS:
        return first
    if kind in ("MatMul", "MatMulInteger"):
        second = dims.get(node.input[1])
        if second is None or len(first) < 2 or len(second) < 2:
            return None
        batch = _broadcast([first[:-2], second[:-2]])
        return None if batch is None else (*batch, first[-2], second[-1])
    if kind == "Gather":
        index, axis = dims.get(node.input[1]), attribute(node, "axis", 0) % max(1, len(first))
        return None if index is None else (*first[:axis], *index, *first[axis + 1 :])
    if kind == "Transpose":
        return tuple(first[place] for place in attribute(node, "perm", range(len(first))[::-1]))
    if kind in ("Unsqueeze", "Squeeze"):
        return _rearranged(kind, first, axes(node, 1, values))
    if kind == "Concat":
        return _joined([dims.get(name) for name in node.input], attribute(node, "axis", 0))
    if kind == "Slice":
        return _sliced(node, first, values)
    if kind in ("Reshape", "Expand"):
        shape = values.get(node.input[1])
        target = None if shape is None else tuple(shape.reshape(-1).tolist())
        if target is None:
            return None
        return _reshaped(first, target) if kind == "Reshape" else _broadcast([first, target])
    if kind.startswith("Reduce"):
        reduced = axes(node, 1, values)
        if reduced is None:
            return None
        gone = {axis % len(first) for axis in reduced}
        kept = attribute(node, "keepdims", 1)
        return tuple(1 if i in gone else size for i, size in enumerate(first) if kept or i not in gone)
    return None


def of_values(node: onnx.NodeProto, dims: Mapping[str, Dims], values: Mapping[str, Values]) -> Values | None:
    """The output's values, for operators that exporters compute shapes and scales with; else None."""
    kind = node.op_type
    if kind == "Shape":
        sizes = dims.get(node.input[0])
        if sizes is None:
            return None
        return _array(sizes[attribute(node, "start", 0) : attribute(node, "end", len(sizes))])
    if kind == "Constant":
        return _stated(node)
    inputs = [values.get(name) for name in node.input]
    if not inputs or any(value is None for value in inputs):
        return None
    tensors = [value for value in inputs if value is not None]
    first = tensors[0]
    if kind == "Gather" and attribute(node, "axis", 0) == 0:
        return (
            _array(first[tensors[1].astype(np.int64)]) if first.ndim == 1 and not _names(tensors[1]) else None
        )
    if kind == "Slice" and first.ndim == 1 and not any(map(_names, tensors[1:])):
        step = int(tensors[4].item()) if len(tensors) > 4 else 1
        return _array(first[int(tensors[1].item()) : int(tensors[2].item()) : step])
    if kind == "Concat":
        if any(value.ndim != 1 for value in tensors):
            return None
        return _array([item for value in tensors for item in value.reshape(-1).tolist()])
    if kind == "Identity":
        return first
    if kind == "Reshape":
        form = [size for size in tensors[1].tolist() if isinstance(size, int) and size]
        return first.reshape(form) if len(form) == tensors[1].size else None
    if kind in ("Unsqueeze", "Squeeze"):
        after = _rearranged(kind, first.shape, axes(node, 1, values))
        return None if after is None else first.reshape([size for size in after if isinstance(size, int)])
    if kind == "Cast":
        to = attribute(node, "to", 0)
        if _names(first):
            return first if to in (TensorProto.INT64, TensorProto.INT32) else None
        return first.astype(helper.tensor_dtype_to_np_dtype(to)) if to in _TYPES else None
    if kind == "ConstantOfShape":
        small = not _names(first) and prod(first.tolist()) <= SMALL
        return np.full(first.tolist(), filler(node)) if small else None
    if kind == "Equal":
        if first.ndim != 1 or tensors[1].size not in (1, first.size) or tensors[1].ndim > 1:
            return None
        pairs = zip(*(value.tolist() for value in np.broadcast_arrays(*tensors)), strict=True)
        return np.array([_equal(a, b) for a, b in pairs], object)
    if kind == "Where":
        if first.ndim != 1 or any(value.shape != first.shape for value in tensors) or None in first.tolist():
            return None
        chosen = zip(*(value.tolist() for value in tensors), strict=True)
        return _array([yes if condition else no for condition, yes, no in chosen])
    if any(map(_names, tensors)):
        return None
    if kind in _NUMBERS:
        result: Values = _NUMBERS[kind](*tensors)
        return result
    if kind == "Div" and (tensors[1] != 0).all():
        ratio = np.divide(*tensors)
        return ratio if first.dtype.kind == "f" else np.trunc(ratio).astype(first.dtype)
    return None


def _stated(node: onnx.NodeProto) -> Values | None:
    """A constant that is not written as a tensor."""
    for entry in node.attribute:
        if entry.name in ("value_float", "value_floats", "value_int", "value_ints"):
            kind = np.float32 if "float" in entry.name else np.int64
            return np.array(helper.get_attribute_value(entry), kind)
    return None


def _array(items: Sequence[Any] | Values) -> Values:
    array = np.array(items.tolist() if isinstance(items, np.ndarray | np.generic) else items, object)
    numbers = all(isinstance(item, int) for item in array.reshape(-1).tolist())
    return array.astype(np.int64) if numbers else array


def _names(values: Values) -> bool:
    return values.dtype == object


def _equal(first: Size, second: Size) -> bool | None:
    """None if it depends; a size is at least 1, so no name equals -1 or 0."""
    if first == second and first is not None:
        return True
    numbers = [size for size in (first, second) if isinstance(size, int)]
    comparable = len(numbers) == 2 or (len(numbers) == 1 and numbers[0] < 1 and None not in (first, second))
    return False if comparable else None


def filler(node: onnx.NodeProto) -> Any:
    """The number, of its type, that a ``ConstantOfShape`` gives."""
    value = attribute(node, "value", None)
    return numpy_helper.to_array(value).reshape(-1)[0] if value is not None else np.float32(0)


def _broadcast(shapes: Sequence[Dims | None]) -> Dims | None:
    ranked = [shape for shape in shapes if shape is not None]
    if len(ranked) < len(shapes):
        return None
    rank = max((len(shape) for shape in ranked), default=0)
    aligned = [(1,) * (rank - len(shape)) + shape for shape in ranked]
    result: list[Size] = []
    for sizes in zip(*aligned, strict=True):
        larger = {size for size in sizes if size != 1}
        # A number wins over a name, which can only be as large, or 1.
        fixed = {size for size in larger if isinstance(size, int)}
        result.append(next(iter(fixed or larger)) if len(fixed or larger) == 1 else (None if larger else 1))
    return tuple(result)


def _joined(parts: Sequence[Dims | None], axis: int) -> Dims | None:
    """The sizes of a Concat whose parts are known by numbers."""
    numbers = [[size for size in part if isinstance(size, int)] for part in parts if part is not None]
    rank = len(numbers[0]) if numbers else 0
    if len(numbers) < len(parts) or not -rank <= axis < rank:
        return None
    if any(len(sizes) != rank or len(part or ()) != rank for sizes, part in zip(numbers, parts, strict=True)):
        return None
    result = numbers[0]
    result[axis] = sum(sizes[axis] for sizes in numbers)
    return tuple(result)


def _counted(bounds: Sequence[Values | None]) -> Dims | None:
    """The size of a Range between numbers that are known."""
    single = [bound for bound in bounds if bound is not None and bound.size == 1 and not _names(bound)]
    numbers = [bound.item() for bound in single]
    if len(numbers) < len(bounds) or len(numbers) != 3 or not numbers[2]:
        return None
    start, limit, step = numbers
    return (max(0, ceil((limit - start) / step)),)


def _rearranged(kind: str, dims: Dims, places: list[int] | None) -> Dims | None:
    if places is None:
        return None
    if kind == "Squeeze":
        gone = {place % len(dims) for place in places}
        return tuple(size for i, size in enumerate(dims) if i not in gone)
    whole = len(dims) + len(places)
    new = {place % whole for place in places}
    rest = iter(dims)
    return tuple(1 if i in new else next(rest) for i in range(whole))


def _sliced(node: onnx.NodeProto, dims: Dims, values: Mapping[str, Values]) -> Dims | None:
    """From the first on: as many as there are, or as are asked for (of a table of positions)."""
    bounds = [values.get(name) for name in node.input[1:]]
    if len(bounds) < 2 or any(value is None for value in bounds):
        return None
    starts, ends, *rest = [value.reshape(-1).tolist() for value in bounds if value is not None]
    where = rest[0] if rest else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    result = list(dims)
    for start, end, axis, step in zip(starts, ends, where, steps, strict=True):
        size = dims[axis]
        if step != 1 or not isinstance(start, int):
            result[axis] = None
        elif start == 0 and isinstance(end, str):
            result[axis] = end if isinstance(size, int) or size == end else None
        elif isinstance(size, int) and isinstance(end, int):
            result[axis] = len(range(*slice(start, end).indices(size)))
        else:
            result[axis] = size if start == 0 and isinstance(end, int) and end >= 2**31 - 1 else None
    return tuple(result)


def _reshaped(dims: Dims, target: Sequence[Any]) -> Dims | None:
    if any(size == 0 and place >= len(dims) for place, size in enumerate(target)):
        return None
    result: list[Size] = [dims[place] if size == 0 else size for place, size in enumerate(target)]
    if -1 not in result:
        return tuple(result)
    rest = [size for size in result if size != -1]
    missing: Size = None
    if None not in dims and None not in rest:
        names = Counter(size for size in dims if isinstance(size, str))
        taken = Counter(size for size in rest if isinstance(size, str))
        whole, part = (prod(size for size in sizes if isinstance(size, int)) for sizes in (dims, rest))
        left = names - taken
        if not taken - names and part and whole % part == 0:
            if not left:
                missing = whole // part
            elif left.total() == 1 and whole == part:
                missing = next(iter(left))
    result[result.index(-1)] = missing
    return tuple(result)
