"""Heads of attention and neurons of feed-forward layers that are zero, found and cut out.

Pruning tools only write zeros: the file and its products stay as large as before. A neuron goes if nothing
reads it (its row of the second matrix is zero), or if it gives zero whatever comes in: its column of the
first matrix is zero, and so is the activation of its bias. A head goes for the same reasons, of its part of
the output matrix or of its values. The remaining model computes the same sums without the zeros.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from triton_repo_builder.model.graph import names, reader, walk, weights
from triton_repo_builder.model.read.skeleton import Skeleton

ELEMENTWISE = {
    *(
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Erf",
        "Tanh",
        "Sigmoid",
        "Relu",
        "Gelu",
        "Clip",
        "Identity",
        "Cast",
    ),
    *("Max", "Min", "LeakyRelu", "HardSwish", "HardSigmoid", "Elu", "Sqrt", "Dropout", "Abs", "Neg"),
}
"""Between the two matrices of a feed-forward layer: they treat each neuron by itself."""
SEEN = 40
"""Most nodes between the matrices of a layer."""


@dataclass(frozen=True, kw_only=True)
class ZeroParts:
    """Counts of the heads and neurons of a model that are zero."""

    heads: int = 0
    neurons: int = 0
    single: float = 0.0
    """Share of the other numbers of its matrices that are zero one by one."""

    @property
    def any(self) -> bool:
        """Whether there is something to cut out."""
        return bool(self.heads or self.neurons)


@dataclass
class _Graph:
    """A model under way."""

    model: onnx.ModelProto
    folder: Path
    producers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    consumers: dict[str, list[onnx.NodeProto]] = field(default_factory=lambda: defaultdict(list))
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    prefix: str = ""

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.prefix = names.prefix(graph) + "pruned/"
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            self.producers |= dict.fromkeys(node.output, node)
            for name in node.input:
                self.consumers[name].append(node)
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
            elif node.op_type == "Identity" and node.input[0] in self.constants:
                # Exporters keep one of several equal tensors.
                self.constants[node.output[0]] = self.constants[node.input[0]]
        self.outputs = {value.name for value in graph.output}

    def array(self, name: str) -> npt.NDArray[Any]:
        return weights.array(self.constants[name], self.folder)

    def matrix(self, node: onnx.NodeProto | None) -> str:
        """The constant matrix of a ``MatMul``; empty for any other node."""
        if node is None or node.op_type != "MatMul" or node.domain or node.input[0] in self.constants:
            return ""
        tensor = self.constants.get(node.input[1])
        float_matrix = (
            tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2
        )
        return str(node.input[1]) if float_matrix else ""

    def only(self, name: str) -> bool:
        """Whether a tensor has one reader and is not an output."""
        return len(self.consumers[name]) == 1 and name not in self.outputs

    def replace(self, node: onnx.NodeProto, place: int, value: npt.NDArray[Any]) -> None:
        """Give a node another constant, which is its own."""
        name = f"{self.prefix}{node.output[0]}/{place}"
        node.input[place] = name
        self.model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """Two matrices and the elementwise nodes between them, and the neurons that stay."""

    first: onnx.NodeProto
    between: tuple[onnx.NodeProto, ...]
    second: onnx.NodeProto
    kept: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class _Attention:
    """Three projections, the reshapes that split and join the heads, and the heads that stay."""

    projections: tuple[tuple[onnx.NodeProto, onnx.NodeProto | None, onnx.NodeProto], ...]
    """Matrix, bias and reshape of queries, keys and values."""
    join: onnx.NodeProto
    output: onnx.NodeProto
    size: int
    kept: npt.NDArray[np.bool_]


def find(graph: Skeleton) -> ZeroParts:
    """Heads and neurons that can be cut out of the model at ``graph.path``."""
    work = _Graph(reader.load(graph), graph.path.parent)
    layers, attentions = _layers(work), _attentions(work)
    neurons = sum(int((~layer.kept).sum()) for layer in layers)
    heads = sum(int((~attention.kept).sum()) for attention in attentions)
    kept = _kept(layers, attentions)
    zeros = total = 0
    for node in work.model.graph.node:
        if matrix := work.matrix(node):
            rows, columns = kept.get(matrix, (slice(None), slice(None)))
            values = work.array(matrix)[rows][:, columns]
            zeros, total = zeros + int((values == 0).sum()), total + values.size
    single = zeros / total if total else 0.0
    return ZeroParts(heads=heads, neurons=neurons, single=single)


def _kept(layers: list[_Layer], attentions: list[_Attention]) -> dict[str, tuple[Any, Any]]:
    """Rows and columns that stay, of the matrices that lose some."""
    whole, kept = slice(None), dict[str, tuple[Any, Any]]()
    for layer in layers:
        kept[layer.first.input[1]] = (whole, layer.kept)
        kept[layer.second.input[1]] = (layer.kept, whole)
    for attention in attentions:
        columns = np.repeat(attention.kept, attention.size)
        kept |= {matrix.input[1]: (whole, columns) for matrix, _, _ in attention.projections}
        kept[attention.output.input[1]] = (columns, whole)
    return kept


def cut(graph: Skeleton, output: Path) -> ZeroParts:
    """Write the model without them to ``output``."""
    zeros = find(graph)
    work = _Graph(reader.load(graph), graph.path.parent)
    for layer in _layers(work):
        _cut_layer(work, layer)
    for attention in _attentions(work):
        _cut_attention(work, attention)
    used = {name for inner in walk.graphs(work.model.graph) for node in inner.node for name in node.input}
    used |= work.outputs | {value.name for value in work.model.graph.input}
    kept = [tensor for tensor in work.model.graph.initializer if tensor.name in used]
    del work.model.graph.initializer[:]
    work.model.graph.initializer.extend(kept)
    # Sizes that an exporter stated of inner tensors may be outdated.
    del work.model.graph.value_info[:]
    weights.save(work.model, output, graph.path.parent, {})
    return zeros


def _layers(work: _Graph) -> list[_Layer]:
    layers = [_layer(work, node) for node in work.model.graph.node if work.matrix(node)]
    return [layer for layer in layers if layer is not None and not layer.kept.all()]


def _layer(work: _Graph, second: onnx.NodeProto) -> _Layer | None:
    """The layer that ends in this matrix, if it is one whose neurons are each by itself."""
    width = work.array(second.input[1]).shape[0]
    between, waiting, first = dict[str, onnx.NodeProto](), [second.input[0]], list[onnx.NodeProto]()
    while waiting:
        name = waiting.pop()
        node = work.producers.get(name)
        if node is None or len(between) > SEEN:
            return None
        if work.matrix(node):
            first += [] if node in first else [node]
            continue
        if node.op_type not in ELEMENTWISE:
            return None
        between[node.output[0]] = node
        for source in node.input:
            if source in work.constants:
                shape = work.array(source).shape
                if int(np.prod(shape)) not in (1, width) or shape[-1:] not in ((), (1,), (width,)):
                    return None
            elif source and source not in between:
                waiting.append(source)
    if len(first) != 1 or work.array(first[0].input[1]).shape[1] != width:
        return None
    inner = {*between, first[0].output[0]}
    readers = [node for name in inner for node in work.consumers[name]]
    if inner & work.outputs or any(node is not second and node.output[0] not in between for node in readers):
        return None
    ordered = tuple(node for node in work.model.graph.node if node.output and node.output[0] in between)
    unread = ~work.array(second.input[1]).any(axis=1)
    silent = ~work.array(first[0].input[1]).any(axis=0)
    if silent.any():
        silent &= _of_zero(work, first[0], ordered, second, width) == 0
    kept = ~(unread | silent)
    if not kept.any():
        kept[0] = True
    return _Layer(first=first[0], between=ordered, second=second, kept=kept)


def _of_zero(
    work: _Graph,
    first: onnx.NodeProto,
    between: tuple[onnx.NodeProto, ...],
    second: onnx.NodeProto,
    width: int,
) -> npt.NDArray[Any]:
    """The result of the nodes between the matrices for zeros; not zero if it cannot be computed here."""
    needed = {name for node in between for name in node.input if name in work.constants}
    constants = [numpy_helper.from_array(np.asarray(work.array(name)), name) for name in sorted(needed)]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        between,
        "between",
        [helper.make_tensor_value_info(first.output[0], kind, [1, width])],
        [helper.make_tensor_value_info(second.input[0], kind, None)],
        constants,
    )
    if not between:
        return np.zeros(width)
    try:
        model = helper.make_model(graph, opset_imports=work.model.opset_import)
        (value,) = ReferenceEvaluator(model).run(None, {first.output[0]: np.zeros((1, width), np.float32)})
    except Exception:  # an operator that onnx's reference does not know
        return np.ones(width)
    whole: npt.NDArray[Any] = np.broadcast_to(np.asarray(value), (1, width))[0]
    return whole


def _cut_layer(work: _Graph, layer: _Layer) -> None:
    width = len(layer.kept)
    work.replace(layer.first, 1, work.array(layer.first.input[1])[:, layer.kept])
    for node in layer.between:
        for place, name in enumerate(node.input):
            if name in work.constants and work.array(name).size == width and width > 1:
                work.replace(node, place, work.array(name)[..., layer.kept])
    work.replace(layer.second, 1, work.array(layer.second.input[1])[layer.kept])


def _attentions(work: _Graph) -> list[_Attention]:
    candidates = [_attention(work, node) for node in work.model.graph.node if work.matrix(node)]
    return [attention for attention in candidates if attention is not None and not attention.kept.all()]


def _attention(work: _Graph, output: onnx.NodeProto) -> _Attention | None:
    """The attention whose heads this matrix joins."""
    join = work.producers.get(output.input[0])
    turned = work.producers.get(join.input[0]) if join is not None and join.op_type == "Reshape" else None
    context = (
        work.producers.get(turned.input[0]) if turned is not None and turned.op_type == "Transpose" else None
    )
    if join is None or context is None or context.op_type != "MatMul" or not work.only(join.output[0]):
        return None
    values = _projection(work, context.input[1])
    scores = _before(work, context.input[0])
    if values is None or scores is None:
        return None
    sides = [_projection(work, name) for name in scores.input]
    projections = [values, *(side for side in sides if side is not None)]
    width = work.array(output.input[1]).shape[0]
    sizes = {_last_dim(work, reshape.input[1]) for _, _, reshape in projections}
    size = sizes.pop() if len(sizes) == 1 else 0
    matched = all(work.array(matrix.input[1]).shape[1] == width for matrix, _, _ in projections)
    if len(projections) != 3 or not matched or size <= 0 or width % size:
        return None
    unread = ~work.array(output.input[1]).any(axis=1)
    matrix, bias, _ = values
    silent = ~work.array(matrix.input[1]).any(axis=0)
    if bias is not None:
        silent &= work.array(_constant_of(work, bias)).reshape(-1) == 0
    by_head = (-1, size)
    kept = ~(unread.reshape(by_head).all(axis=1) | silent.reshape(by_head).all(axis=1))
    if not kept.any():
        kept[0] = True
    return _Attention(projections=tuple(projections), join=join, output=output, size=size, kept=kept)


def _before(work: _Graph, name: str) -> onnx.NodeProto | None:
    """The product of queries and keys that the probabilities come from."""
    for _ in range(SEEN):
        node = work.producers.get(name)
        if node is None or node.op_type == "MatMul":
            return node
        # The mask and the scale are the other inputs.
        inner = [
            source for source in node.input if source in work.producers and _leads_to_product(work, source)
        ]
        if not inner:
            return None
        name = inner[0]
    return None


def _leads_to_product(work: _Graph, name: str) -> bool:
    seen, waiting = set[str](), [name]
    while waiting and len(seen) < SEEN:
        node = work.producers.get(waiting.pop())
        if node is None or node.output[0] in seen:
            continue
        if node.op_type == "MatMul":
            return True
        seen.add(node.output[0])
        if node.op_type not in ("Shape", "Reshape", "Gather"):
            waiting.extend(node.input)
    return False


def _projection(
    work: _Graph, name: str
) -> tuple[onnx.NodeProto, onnx.NodeProto | None, onnx.NodeProto] | None:
    """Matrix, bias and reshape of the queries, keys or values that a tensor is."""
    reshape: onnx.NodeProto | None = None
    bias: onnx.NodeProto | None = None
    for _ in range(SEEN):
        node = work.producers.get(name)
        if node is None:
            return None
        if work.matrix(node):
            return (node, bias, reshape) if reshape is not None and work.only(node.output[0]) else None
        if node.op_type == "Reshape" and reshape is None:
            reshape = node
        elif node.op_type == "Add" and reshape is not None and bias is None and _constant_of(work, node):
            bias = node
        elif reshape is not None or node.op_type not in ("Transpose", "Mul", "Div"):
            return None
        name = next((source for source in node.input if source not in work.constants), "")
    return None


def _constant_of(work: _Graph, node: onnx.NodeProto) -> str:
    return next((str(name) for name in node.input if name in work.constants), "")


def _last_dim(work: _Graph, name: str) -> int:
    """The last number of a shape, as far as it is constant; 0 if it is not."""
    node = work.producers.get(name)
    while name not in work.constants and node is not None and node.op_type == "Concat":
        name = node.input[-1]
        node = work.producers.get(name)
    return int(work.array(name).reshape(-1)[-1]) if name in work.constants else 0


def _cut_attention(work: _Graph, attention: _Attention) -> None:
    columns = np.repeat(attention.kept, attention.size)
    heads = int(attention.kept.sum())
    for matrix, bias, reshape in attention.projections:
        work.replace(matrix, 1, work.array(matrix.input[1])[:, columns])
        if bias is not None:
            name = _constant_of(work, bias)
            work.replace(bias, list(bias.input).index(name), work.array(name)[..., columns])
        work.replace(reshape, 1, np.array([0, 0, heads, attention.size], np.int64))
    work.replace(attention.join, 1, np.array([0, 0, heads * attention.size], np.int64))
    work.replace(attention.output, 1, work.array(attention.output.input[1])[columns])
