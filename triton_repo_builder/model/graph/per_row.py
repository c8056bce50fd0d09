"""Int8 with one activation scale per row, in standard ONNX operators.

``DynamicQuantizeLinear`` scales by the largest number of the whole batch, so that an answer depends on its
neighbours. Here every row (every token) has its own scale, and every column of a weight has one:

    scale[row] = max |a[row]| / 127        q = QuantizeLinear(a, scale, 128)        uint8
    y = Cast(MatMulInteger(q, w, 128)) * w_scale[column] * scale[row]

ONNX Runtime has fast kernels for uint8 by int8 only, hence the 128 (int8 by int8: ten times slower). Before
opset 13, QuantizeLinear is Cast(a / scale + 128.5): Cast cuts the fraction off, so half a step more rounds.

The Gelu of a graph becomes its approximation by Tanh (gelu.py), which loses less than int8 does, and the
bias of an attention's values moves into the bias of the next product (value_bias.py).

Rows are then independent by arithmetic: integer sums are exact, and so the answer is the same alone and
in any batch. Products of two activations (attention) stay in float: they carry most of the loss. The rows
of an embedding table have a scale each, too: most bytes of a small encoder are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from triton_repo_builder.model.graph import gelu, names, reader, value_bias, weights
from triton_repo_builder.model.read.skeleton import Skeleton

SMALLEST = 1024
"""Numbers that a matrix must have: below, the quantised one costs more than it saves."""
STEPS = 127
"""Steps up to the largest number of a row or a column: symmetric, -128 stays unused."""
MIDDLE = 128
NEEDED_OPSET = 11
"""``ReduceMax`` along the last axis, whatever the rank; ``MatMulInteger`` is of 10."""
AXES_AS_INPUT = 18
OPSET_OF_AXIS = 13
"""``QuantizeLinear`` with a scale for each row."""
BLOCK = 32 << 20
"""Bytes of a matrix that are at hand at once."""
TINY = 1e-30
"""Least scale: a row of zeros must not be divided by zero."""

Progress = Callable[[int, int], None]


@dataclass
class _Rewrite:
    """One model under way: new nodes in order, new initializers, activations that are quantised already."""

    opset: int
    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    quantised: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name of an activation → names of its integers and of its scales."""
    gelus: set[str] = field(default_factory=set)
    """Activations whose negative numbers are known to be small."""
    unit: str = ""
    """Name of the scalar 1.0."""
    scaled: set[str] = field(default_factory=set)
    """Names of scales of columns times that."""

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        name = self.prefix + name
        self.initializers.setdefault(name, value)
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output

    def activation(self, name: str, width: int) -> tuple[str, str]:
        """The integers and scales of an activation […, width], made once however many products take it."""
        if name in self.quantised:
            return self.quantised[name]
        base = f"{self.prefix}{name}"
        # Of both ends: a pass that only reads takes less than Abs, which writes as much as there is.
        ends = [self._last_axis("ReduceMax", name, f"{base}/max")]
        if name in self.gelus:
            ends.append(self.constant("gelu/largest_negative", np.array(-gelu.LEAST, np.float32)))
        else:
            least = self._last_axis("ReduceMin", name, f"{base}/min")
            ends.append(self.add("Neg", [least], f"{base}/minus_min"))
            ends.append(self.constant("tiny", np.array(TINY * STEPS, np.float32)))
        largest = self.add("Max", ends, f"{base}/largest")
        step = self.constant("step", np.array(1 / STEPS, np.float32))
        scale = self.add("Mul", [largest, step], f"{base}/scale")
        integers = self._rows(name, scale, width) if self.opset >= OPSET_OF_AXIS else self._plain(name, scale)
        self.quantised[name] = (integers, scale)
        return integers, scale

    def _last_axis(self, kind: str, name: str, output: str) -> str:
        if self.opset < AXES_AS_INPUT:
            return self.add(kind, [name], output, axes=[-1], keepdims=1)
        axes = self.constant("last_axis", np.array([-1], np.int64))
        return self.add(kind, [name, axes], output, keepdims=1)

    def _rows(self, name: str, scale: str, width: int) -> str:
        """One ``QuantizeLinear``: its scales are of one axis, so all rows are laid along one."""
        base = f"{self.prefix}{name}"
        rows = self.constant("one_axis", np.array([-1], np.int64))
        shape = self.add("Shape", [name], f"{base}/shape")
        scales = self.add("Reshape", [scale, rows], f"{base}/scales")
        count = self.add("Shape", [scales], f"{base}/rows")
        flat = self.constant(f"rows_of_{width}", np.array([-1, width], np.int64))
        flat = self.add("Reshape", [name, flat], f"{base}/flat")
        middle = self.add(
            "Expand", [self.constant("zero", np.array(MIDDLE, np.uint8)), count], f"{base}/middle"
        )
        integers = self.add("QuantizeLinear", [flat, scales, middle], f"{base}/flat_integers", axis=0)
        return self.add("Reshape", [integers, shape], f"{base}/integers")

    def _plain(self, name: str, scale: str) -> str:
        base = f"{self.prefix}{name}"
        inverse = self.add("Reciprocal", [scale], f"{base}/inverse")
        ratio = self.add("Mul", [name, inverse], f"{base}/ratio")
        middle = self.constant("middle", np.array(MIDDLE + 0.5, np.float32))
        moved = self.add("Add", [ratio, middle], f"{base}/moved")
        return self.add("Cast", [moved], f"{base}/integers", to=onnx.TensorProto.UINT8)

    def one(self, name: str) -> str:
        """1.0, of the size of an activation: ONNX Runtime must not fold it into a constant.

        ``Cast(MatMulInteger) * (scalar * scales of columns)`` is then one kernel, MatMulIntegerToFloat, which
        has no pass over the sums of its own for the cast and the scales.
        """
        if not self.unit:
            size = self.add("Size", [name], f"{self.prefix}size")
            size = self.add("Cast", [size], f"{self.prefix}size_as_float", to=onnx.TensorProto.FLOAT)
            self.unit = self.add("Div", [size, size], f"{self.prefix}one")
        return self.unit

    def constant_product(self, scales: str, activation: str) -> str:
        """Scales of columns times ``one``."""
        name = f"{scales}/times_one"
        if name not in self.scaled:
            self.scaled.add(self.add("Mul", [self.one(activation), scales], name))
        return name


def products(graph: Skeleton) -> tuple[str, ...]:
    """Outputs of the matrix products that can be quantised, in the order of the graph."""
    model = reader.load(graph)
    matrices = _matrices(model)
    return tuple(node.output[0] for node in model.graph.node if _matrix_of(node, matrices))


def quantise(
    graph: Skeleton,
    output: Path,
    *,
    excluded: Iterable[str] = (),
    metadata: Mapping[str, str] | None = None,
    progress: Progress = lambda done, total: None,
) -> int:
    """Write the model at ``graph.path`` with int8 weights to ``output``; the number of its products.

    ``excluded`` are outputs of products (``products``) that stay in float.
    """
    model = reader.load(graph)
    folder, kept = graph.path.parent, frozenset(excluded)
    matrices = _matrices(model)
    work = _Rewrite(opset=_opset(model), prefix=names.prefix(model.graph) + "int8/")
    work.initializers |= value_bias.move(model, folder, work.prefix)
    constants = {tensor.name for tensor in model.graph.initializer} | work.initializers.keys()
    work.gelus = gelu.approximate(model.graph, work.prefix)
    nodes, total, done = list(model.graph.node), len(model.graph.node), 0
    for number, node in enumerate(nodes):
        progress(number, total)
        matrix = _matrix_of(node, matrices)
        if matrix and node.output[0] not in kept:
            _product(work, node, matrices[matrix], folder)
            done += 1
        elif node.op_type == "Gather" and _is_table(node, matrices):
            _table(work, node, matrices[node.input[0]], folder)
        else:
            _bias_last(node, constants)
            work.nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(work.nodes)
    weights.drop_unread(model)
    model.ir_version = max(model.ir_version, 4)
    weights.save(model, output, folder, metadata or {}, work.initializers)
    progress(total, total)
    return done


def _bias_last(node: onnx.NodeProto, constants: Set[str]) -> None:
    """ONNX Runtime fuses a constant term only if it is the second one (skip_layer_norm_fusion.cc)."""
    if node.op_type == "Add" and [name in constants for name in node.input] == [True, False]:
        node.input[:] = [node.input[1], node.input[0]]


def _opset(model: onnx.ModelProto) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _matrices(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Float matrices that are large enough and that no input overrides, by name."""
    if _opset(model) < NEEDED_OPSET:
        return {}
    inputs = {value.name for value in model.graph.input}
    return {
        tensor.name: tensor
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
        and len(tensor.dims) == 2
        and int(np.prod(tensor.dims)) >= SMALLEST
        and tensor.name not in inputs
    }


def _matrix_of(node: onnx.NodeProto, matrices: Mapping[str, onnx.TensorProto]) -> str:
    """The constant matrix of a product that is quantised; empty for any other node."""
    if len(node.input) < 2 or node.input[1] not in matrices or node.input[0] in matrices or node.domain:
        return ""
    matrix = str(node.input[1])
    if node.op_type == "MatMul":
        return matrix
    options = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    plain = not options.get("transA", 0) and options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0
    return matrix if node.op_type == "Gemm" and plain else ""


def _is_table(node: onnx.NodeProto, matrices: Mapping[str, onnx.TensorProto]) -> bool:
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return node.input[0] in matrices and axis == 0 and not node.domain


def _product(work: _Rewrite, node: onnx.NodeProto, tensor: onnx.TensorProto, folder: Path) -> None:
    """``MatMul`` or ``Gemm`` with a constant matrix."""
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    name = f"{tensor.name}/columns" + ("/transposed" if transposed else "")
    integers, scales = work.prefix + name, f"{work.prefix}{name}/scale"
    if integers not in work.initializers:
        values, scale = _quantised(weights.array(tensor, folder), 1 if transposed else 0)
        work.constant(name, values.T if transposed else values)
        work.constant(f"{name}/scale", scale)
    rows, row_scales = work.activation(node.input[0], tensor.dims[1 if transposed else 0])
    output = node.output[0]
    base = f"{work.prefix}{output}"
    zero = work.constant("zero", np.array(MIDDLE, np.uint8))
    bias = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
    of_columns = work.constant_product(scales, node.input[0])
    total = work.add("MatMulInteger", [rows, integers, zero], f"{base}/sum")
    total = work.add("Cast", [total], f"{base}/float", to=onnx.TensorProto.FLOAT)
    total = work.add("Mul", [total, of_columns], f"{base}/of_column")
    total = work.add("Mul", [total, row_scales], f"{base}/of_row" if bias else output)
    if bias:
        work.add("Add", [total, node.input[2]], output)


def _table(work: _Rewrite, node: onnx.NodeProto, tensor: onnx.TensorProto, folder: Path) -> None:
    """Rows of an embedding table."""
    name = f"{tensor.name}/rows"
    integers, scales = work.prefix + name, f"{work.prefix}{name}/scale"
    if integers not in work.initializers:
        values, scale = _quantised(weights.array(tensor, folder), 1)
        work.constant(name, values)
        work.constant(f"{name}/scale", scale[:, None])
    output = node.output[0]
    base = f"{work.prefix}{output}"
    row = work.add("Gather", [integers, node.input[1]], f"{base}/id", axis=0)
    scale_of_row = work.add("Gather", [scales, node.input[1]], f"{base}/scale_of_id", axis=0)
    row = work.add("Cast", [row], f"{base}/float_of_id", to=onnx.TensorProto.FLOAT)
    work.add("Mul", [row, scale_of_row], output)


def _quantised(matrix: npt.NDArray[Any], axis: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """(integers, scale of each column or row); ``axis`` is the one that a scale is the largest number along.

    In blocks of rows: an embedding table alone may be gigabytes.
    """
    step = max(1, BLOCK // max(1, matrix[:1].nbytes))
    blocks = [slice(first, first + step) for first in range(0, len(matrix), step)]
    largest = [np.abs(matrix[block]).max(axis=axis) for block in blocks]
    joined = np.max(largest, axis=0) if axis == 0 else np.concatenate(largest)
    scale = np.maximum(joined, TINY).astype(np.float32) / np.float32(STEPS)
    integers = np.empty(matrix.shape, np.int8)
    for block in blocks:
        divisor = scale if axis == 0 else scale[block, None]
        integers[block] = np.rint(matrix[block] / divisor)
    return integers, scale
