"""Small ONNX graphs for tests, each a few nodes: ``save(path, nodes, inputs, outputs)``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

FLOAT, INT32, INT64, STRING = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.STRING
BOOL, FP16, BF16 = TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.BFLOAT16


def tensor(name: str, shape: Sequence[int | str] | None, dtype: int = FLOAT) -> Any:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    """A node."""
    return helper.make_node(operator, inputs, outputs, **attributes)


def sequence(name: str) -> Any:
    """An output that is a sequence of tensors."""
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def constant(name: str, dtype: int, dims: Sequence[int], values: Sequence[Any]) -> Any:
    """An initializer."""
    return helper.make_tensor(name, dtype, dims, values)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    initializers: Sequence[Any] = (),
    opset: int = 17,
    ir_version: int = 8,
    domains: Sequence[str] = (),
) -> bytes:
    """A serialised model."""
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, initializer=list(initializers))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    proto = helper.make_model(graph, opset_imports=opsets)
    proto.ir_version = ir_version
    content: bytes = proto.SerializeToString()
    return content


def identity(shape: Sequence[int | str], dtype: int = FLOAT, out: Sequence[int | str] | None = None) -> bytes:
    """X → Y, of one shape unless another is declared for Y."""
    outputs = [tensor("Y", shape if out is None else out, dtype)]
    return model([node("Identity", ["X"], ["Y"])], [tensor("X", shape, dtype)], outputs)


def add_subtract() -> bytes:
    """A and B, [batch, 4] → S = A + B and D = A − B."""
    nodes = [node("Add", ["A", "B"], ["S"]), node("Sub", ["A", "B"], ["D"])]
    shape: list[int | str] = ["batch", 4]
    return model(nodes, [tensor("A", shape), tensor("B", shape)], [tensor("S", shape), tensor("D", shape)])


def segment_sums() -> bytes:
    """Ragged ``tokens`` [total] and ``lengths`` [rows, 1] → Y [rows, 1], the sum of each row's tokens."""
    nodes = [
        node("Reshape", ["lengths", "flat"], ["flat_lengths"]),
        node("Cast", ["flat_lengths"], ["counts"], to=INT64),
        node("CumSum", ["counts", "axis"], ["ends"]),
        node("Sub", ["ends", "one"], ["last"]),
        node("Cast", ["tokens"], ["values"], to=FLOAT),
        node("CumSum", ["values", "axis"], ["running"]),
        node("Gather", ["running", "last"], ["totals"]),
        node("Slice", ["totals", "start", "minus_one"], ["without_last"]),
        node("Concat", ["nothing", "without_last"], ["before"], axis=0),
        node("Sub", ["totals", "before"], ["sums"]),
        node("Unsqueeze", ["sums", "columns"], ["Y"]),
    ]
    constants = [
        constant("flat", INT64, [1], [-1]),
        constant("axis", INT64, [], [0]),
        constant("one", INT64, [1], [1]),
        constant("start", INT64, [1], [0]),
        constant("minus_one", INT64, [1], [-1]),
        constant("nothing", FLOAT, [1], [0.0]),
        constant("columns", INT64, [1], [1]),
    ]
    inputs = [tensor("tokens", ["total"], INT32), tensor("lengths", ["rows", 1])]
    return model(nodes, inputs, [tensor("Y", ["rows", 1])], initializers=constants)


def lookup() -> bytes:
    """X [batch, 1] INT64 → Y [batch, 1], the X-th of four numbers; any other X fails the run."""
    numbers = constant("numbers", FLOAT, [4], [10.0, 11.0, 12.0, 13.0])
    shape: list[int | str] = ["batch", 1]
    return model(
        [node("Gather", ["numbers", "X"], ["Y"])],
        [tensor("X", shape, INT64)],
        [tensor("Y", shape)],
        initializers=[numbers],
    )


def write(repository: Path, name: str, config: str, content: bytes | None, file: str = "model.onnx") -> Path:
    """A model directory with one version."""
    path = repository / name / "1" / file
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    (repository / name / "config.pbtxt").write_text(config)
    return path
