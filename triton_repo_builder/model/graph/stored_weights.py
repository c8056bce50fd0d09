"""Weights that a file stores as 8-bit integers and the graph computes as floats, folded to float constants.

    DequantizeLinear(q, scale, zero_point)       Mul(Cast(q), scale)       also transposed

Files are stored like this to be small, and quantisers, which look for constant matrices, find none. The
folded file has them, with the same numbers to the last bit.

One weight at a time is in memory. A product whose activation is dequantised, too, stays as it is: ONNX
Runtime computes it with integers already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from triton_repo_builder.model.graph import reader, walk, weights
from triton_repo_builder.model.read.skeleton import Skeleton

Array = npt.NDArray[Any]

SMALLEST = 1024
"""Numbers that a weight must have."""
PLACES = {"MatMul": 1, "Gemm": 1, "Conv": 1, "Gather": 0}
"""Operators whose weights are folded, and the input that is the weight."""
STORED = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)


def fold(graph: Skeleton, output: Path) -> int:
    """Write the model with these weights as float constants to ``output``; their number.

    Nothing is written if there are none.
    """
    model = reader.load(graph)
    expressions = _Expressions(model, graph.path.parent)
    names = tuple(expressions.weights())
    if not names:
        return 0
    added = {
        name: weights.Deferred(
            shape=expressions.shapes[name],
            dtype=np.dtype(np.float32),
            compute=partial(expressions.array, name),
        )
        for name in names
    }
    _drop_nodes(model.graph, frozenset(names), expressions)
    weights.drop_unread(model)
    weights.save(model, output, graph.path.parent, {}, added)
    return len(names)


@dataclass
class _Expressions:
    """Tensors that are computed from constants only, with their values."""

    model: onnx.ModelProto
    folder: Path
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    producers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    """The node of each constant expression."""
    dequantised: set[str] = field(default_factory=set)
    """Outputs of ``DequantizeLinear``, of activations as well."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    """Element types, as numbers of onnx.proto."""
    stored: set[str] = field(default_factory=set)
    """Constants and expressions that hold 8-bit integers of a weight."""

    def __post_init__(self) -> None:
        inputs = {value.name for value in self.model.graph.input}
        for tensor in self.model.graph.initializer:
            if tensor.name not in inputs:
                self._constant(tensor.name, tensor)
        for node in self.model.graph.node:  # in topological order
            if node.op_type == "DequantizeLinear":
                self.dequantised.update(node.output)
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constant(node.output[0], node.attribute[0].t)
            elif node.op_type in OPERATORS and not node.domain:
                self._expression(node)

    def _constant(self, name: str, tensor: onnx.TensorProto) -> None:
        self.constants[name] = tensor
        self.shapes[name], self.kinds[name] = tuple(tensor.dims), tensor.data_type
        if tensor.data_type in STORED and np.prod(tensor.dims, dtype=np.int64) >= SMALLEST:
            self.stored.add(name)

    def _expression(self, node: onnx.NodeProto) -> None:
        inputs = [name for name in node.input if name]
        if not inputs or not all(name in self.shapes for name in inputs):
            return
        kind = _kind(node, [self.kinds[name] for name in inputs])
        try:
            shape = _shape(node, [self.shapes[name] for name in inputs])
        except ValueError:  # a graph that ONNX Runtime would refuse
            return
        if not kind:
            return
        output = node.output[0]
        self.producers[output] = node
        self.shapes[output], self.kinds[output] = shape, kind
        if not self.stored.isdisjoint(inputs):
            self.stored.add(output)

    def weights(self) -> Iterator[str]:
        """Names of the float weights to fold, each once."""
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.model.graph.node:
            place = PLACES.get(node.op_type, len(node.input)) if not node.domain else len(node.input)
            if place < len(node.input) and node.input[place] in self.producers:
                readers.setdefault(str(node.input[place]), []).append(node)
        for name, nodes in readers.items():
            floats = name in self.stored and self.kinds[name] == onnx.TensorProto.FLOAT
            if floats and not any(self._computed_with_integers(node) for node in nodes):
                yield name

    def _computed_with_integers(self, node: onnx.NodeProto) -> bool:
        """Whether a product's activation is dequantised, too."""
        return PLACES[node.op_type] == 1 and node.input[0] in self.dequantised

    def array(self, name: str) -> Array:
        """The numbers of a constant or an expression."""
        if name in self.constants:
            return weights.array(self.constants[name], self.folder)
        node = self.producers[name]
        return OPERATORS[node.op_type](_options(node), [self.array(each) for each in node.input if each])


def _options(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _kind(node: onnx.NodeProto, kinds: list[int]) -> int:
    """Element type of a node's output; 0 if it is not folded."""
    if node.op_type == "Cast":
        return int(_options(node)["to"]) if _options(node)["to"] in FLOATS else 0
    if node.op_type == "DequantizeLinear":
        plain = kinds[0] in STORED and kinds[1] in FLOATS and "output_dtype" not in _options(node)
        return kinds[1] if plain else 0
    if node.op_type in ARITHMETIC and not (kinds[0] == kinds[1] and kinds[0] in FLOATS):
        return 0
    return kinds[0]


def _shape(node: onnx.NodeProto, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    if node.op_type in ARITHMETIC:
        return tuple(np.broadcast_shapes(*shapes))
    if node.op_type == "Transpose":
        axes = _options(node).get("perm") or range(len(shapes[0]))[::-1]
        return tuple(shapes[0][axis] for axis in axes)
    return shapes[0]


def _dequantised(options: Mapping[str, Any], arrays: list[Array]) -> Array:
    integers, scale, *zeros = arrays
    axis, block = options.get("axis", 1), options.get("block_size", 0)

    def along(values: Array) -> Array:
        if block:
            return np.repeat(values, block, axis)[tuple(map(slice, integers.shape))]
        if values.size == 1:
            return values.reshape(())
        return values.reshape([-1 if each == axis % integers.ndim else 1 for each in range(integers.ndim)])

    numbers: Array = integers.astype(scale.dtype)
    if zeros:
        numbers -= along(zeros[0]).astype(scale.dtype)
    numbers *= along(scale)
    return numbers


def _cast(options: Mapping[str, Any], arrays: list[Array]) -> Array:
    return arrays[0].astype(helper.tensor_dtype_to_np_dtype(options["to"]))


def _transposed(options: Mapping[str, Any], arrays: list[Array]) -> Array:
    return np.transpose(arrays[0], options.get("perm"))


def _of(function: Callable[[Array, Array], Array], options: Mapping[str, Any], arrays: list[Array]) -> Array:
    return function(*arrays)


ARITHMETIC: Mapping[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}
OPERATORS: Mapping[str, Callable[[Mapping[str, Any], list[Array]], Array]] = {
    "DequantizeLinear": _dequantised,
    "Cast": _cast,
    "Transpose": _transposed,
    "Identity": lambda options, arrays: arrays[0],
    **{name: partial(_of, function) for name, function in ARITHMETIC.items()},
}
"""Operators of constant expressions."""


def _drop_nodes(graph: onnx.GraphProto, folded: frozenset[str], expressions: _Expressions) -> None:
    """Remove the nodes of the folded weights, and the expressions that only they read."""
    read = {value.name for value in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        output = node.output[0] if node.output else ""
        constant = output in expressions.producers or output in expressions.constants
        if output in folded or (constant and output not in read):
            continue
        kept.append(node)
        read.update(name for each in walk.with_subgraphs([node]) for name in each.input)
    del graph.node[:]
    graph.node.extend(reversed(kept))
