"""Sizes, types and values of a graph's tensors, as far as they are known before it runs.

Sizes come from ONNX's own inference and from ``sizes.py``. The sizes of the inputs are named ``ROWS`` and
``TOKENS``: two sizes of one name are equal, whatever the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from triton_repo_builder.model.graph import names, node_rules, shape_inference, walk
from triton_repo_builder.model.graph.packing import sizes
from triton_repo_builder.model.graph.packing.sizes import Dims

ROWS, TOKENS = "trb_rows", "trb_tokens_of_row"
MASK = "attention_mask"
OF_TOKENS = {"input_ids", MASK, "token_type_ids", "position_ids"}
"""Inputs [rows, tokens], those that the front makes."""
_BOOL_OR_NUMBER: Mapping[int, Callable[[Any], Any]] = {
    **dict.fromkeys(
        (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16), float
    ),
    **dict.fromkeys((TensorProto.INT64, TensorProto.INT32), int),
    TensorProto.BOOL: bool,
}
_UNIFORM: Mapping[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Equal": lambda a, b: a == b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Not": lambda a: not a,
    "Neg": lambda a: -a,
    "Where": lambda condition, a, b: a if condition else b,
}
_MOVES = {
    "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Slice", "Transpose", "Gather", "GatherND",
    "Flatten", "Tile",
}  # fmt: skip
"""Operators whose output holds numbers of their first input only."""


class GraphFacts:
    """Facts about the tensors of one graph, by name."""

    @classmethod
    def of(cls, model: onnx.ModelProto) -> GraphFacts | None:
        """The facts; None of a damaged graph, which ONNX Runtime refuses."""
        if node_rules.damaged(model):
            return None
        try:
            return cls(model)
        except (IndexError, KeyError, TypeError, ValueError):  # tensors that are not of their type and size
            return None

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.inputs = names.inputs(model.graph)
        self.producer = {output: node for node in model.graph.node for output in node.output if output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)
        self.outputs = {value.name for value in model.graph.output}
        initializers = [tensor for tensor in model.graph.initializer if tensor.name not in self.inputs]
        self.initializers = {tensor.name for tensor in initializers}
        self.constants = {tensor.name for tensor in initializers}
        """Initializers, and tensors computed from them alone."""
        self.dims: dict[str, Dims] = {tensor.name: tuple(tensor.dims) for tensor in initializers}
        self.kinds: dict[str, int] = {tensor.name: tensor.data_type for tensor in initializers}
        for value in _inferred(model):
            kind = value.type.tensor_type
            self.kinds[value.name] = kind.elem_type
            if kind.HasField("shape"):
                self.dims[value.name] = tuple(_dim(dim) for dim in kind.shape.dim)
        self.sizes: dict[str, sizes.Values] = {
            name: numpy_helper.to_array(tensor)
            for name, tensor in walk.constants(model.graph)
            if int(np.prod(tensor.dims)) <= sizes.SMALL
        }
        self.units: set[str] = set()
        """1, as a number of elements divided by itself (``per_row.py``)."""
        self.unit_sizes: set[str] = set()
        """Tensors between a size and its unit, read by nothing else."""
        self.uniform: dict[str, Any] = {MASK: 1} if MASK in self.inputs else {}
        for node in model.graph.node:
            self._learn(node)
        self.known = {name for name in self.sizes if self.value(name) is not None}
        """Tensors whose ``value`` is known."""

    def value(self, name: str) -> npt.NDArray[Any] | None:
        """The numbers of a small constant, one computed of constants, or of sizes that are fixed."""
        value = self.sizes.get(name)
        kind = self.kinds.get(name)
        if value is None or value.dtype == object or not kind or self.dims.get(name) != value.shape:
            return None
        return value.astype(helper.tensor_dtype_to_np_dtype(kind))

    def takers(self, name: str) -> list[onnx.NodeProto]:
        """Nodes that take the numbers of a tensor, not only its sizes; none where it is an output as well."""
        if name in self.outputs:
            return []
        return [node for node in self.readers.get(name, ()) if node.op_type not in ("Shape", "Size")]

    def _learn(self, node: onnx.NodeProto) -> None:
        if node.domain not in ("", "ai.onnx"):
            return
        if node.op_type == "Split" and (whole := self.dims.get(node.input[0])):
            axis = sizes.attribute(node, "axis", 0) % len(whole)
            for name in node.output:
                part = self.dims.get(name, ())[axis : axis + 1] or (None,)
                self.dims[name] = (*whole[:axis], *part, *whole[axis + 1 :])
        if len(node.output) != 1:
            return
        output = node.output[0]
        if all(name in self.constants or name in self.units for name in node.input if name):
            self.constants.add(output)
        if node.op_type == "Div" and node.input[0] == node.input[1]:
            self._learn_unit(node)
        if (dims := sizes.of_output(node, self.dims, self.sizes)) is not None:
            self.dims[output] = dims
        if output not in self.sizes and (value := sizes.of_values(node, self.dims, self.sizes)) is not None:
            self.sizes[output] = value
        numbers = [self._scalar(name) for name in node.input]
        if node.op_type == "Cast" and numbers[0] is not None:
            convert = _BOOL_OR_NUMBER.get(sizes.attribute(node, "to", 0))
            if convert is not None:
                self.uniform[output] = convert(numbers[0])
        elif node.op_type in _UNIFORM and all(number is not None for number in numbers):
            self.uniform[output] = _UNIFORM[node.op_type](*numbers)
        elif node.op_type in _MOVES and numbers[0] is not None:
            self.uniform[output] = numbers[0]
        elif node.op_type == "ConstantOfShape":
            self.uniform[output] = sizes.filler(node).item()

    def _learn_unit(self, division: onnx.NodeProto) -> None:
        chain, name, by = [], division.input[0], division
        while self.readers.get(name) == [by] and name not in self.outputs:
            chain.append(name)
            source = self.producer.get(name)
            if source is not None and source.op_type == "Size":
                self.units.add(division.output[0])
                self.unit_sizes |= {*chain}
            if source is None or source.op_type != "Cast":
                return
            name, by = source.input[0], source

    def _scalar(self, name: str) -> Any:
        """The number that a tensor consists of throughout, if rows are not padded; None if of several."""
        if name in self.uniform:
            return self.uniform[name]
        value = self.value(name)
        same = value is not None and value.size and (value == value.flat[0]).all()
        return value.flat[0].item() if value is not None and same else None


def _inferred(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """Tensors whose sizes follow from the inputs alone: an exporter names each size of other tensors anew."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in OF_TOKENS and len(dims) == 2:
            for dim, name in zip(dims, (ROWS, TOKENS), strict=True):
                if not dim.dim_value:
                    dim.dim_param = name
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = shape_inference.infer(bare)
    if inferred is not None:
        yield from (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) or None
