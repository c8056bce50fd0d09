"""Random tensor models: any type and rank, random operators; some mix the rows of a batch on purpose."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tiny_onnx import BOOL, FLOAT, FP16, INT32, INT64, tensor

from tests.reliability.graph_writer import Graph, Writer, float_of

DTYPES = (FLOAT, FLOAT, FLOAT, FP16, TensorProto.DOUBLE, INT32, INT64, TensorProto.UINT8, BOOL)
ANSWERS = (FLOAT, FLOAT, FP16, TensorProto.DOUBLE, INT32, INT64, BOOL)
ROWS = 6
MIXING = 0.1
"""Share of graphs whose rows depend on each other: trb build must find that, and serve them one by one."""

STEPS, OFFSET = 64.0, 0.137
"""Numbers are rounded so before an answer that is no number; 0, 0.5 and 1 lie between two steps."""


def make(folder: Path, seed: int) -> Graph:
    """Export a model; the same one for the same seed."""
    rng = random.Random(f"tensor {seed}")
    name = f"tensor_{seed:03d}"
    writer = Writer(rng)
    inputs = {}
    for number in range(rng.randint(1, 3)):
        sizes = [rng.choice((1, 2, 3, 5, 8)) for _ in range(rng.randint(1, 3))]
        inputs[f"IN{number}"] = (rng.choice(DTYPES), sizes)
    dynamic = rng.random() < 0.3
    features = [_features(writer, name, sizes, dynamic) for name, (_, sizes) in inputs.items()]
    width = sum(size for _, size in features)
    state = writer.add("Concat", *(part for part, _ in features), axis=1)
    for _ in range(rng.randint(1, 4)):
        state, width = _layer(writer, state, width)
    mixes = rng.random() < MIXING
    if mixes:
        writer.drawn.append("mixes rows")
        state = writer.add("Sub", state, writer.add("ReduceMean", state, axes=[0], keepdims=1))
    outputs = [_output(writer, number, state, width) for number in range(rng.randint(1, 3))]
    declared = [_declared(name, kind, sizes, dynamic) for name, (kind, sizes) in inputs.items()]
    model = writer.save(folder / f"{name}.onnx", declared, outputs)
    options: dict[str, Any] = {"max_batch_size": rng.choice((2, 4, 16))} if rng.random() < 0.2 else {}
    types = [helper.tensor_dtype_to_np_dtype(kind) for kind, _ in inputs.values()]
    about = f"{dict(zip(inputs, types, strict=True))} {options} {' '.join(writer.drawn)}"
    numbers = np.random.default_rng(seed)
    rows = [
        {name: _values(numbers, kind, sizes) for name, (kind, sizes) in inputs.items()} for _ in range(ROWS)
    ]
    return Graph(name=name, model=model, options=options, rows=rows, about=about)


def _declared(name: str, kind: int, sizes: list[int], dynamic: bool) -> Any:
    """With ``dynamic`` the last axis has any size: the model then reduces it."""
    shape: list[int | str] = ["batch", *sizes]
    if dynamic:
        shape[-1] = f"{name}_size"
    return tensor(name, shape, kind)


def _values(numbers: np.random.Generator, kind: int, sizes: list[int]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    if dtype.kind == "b":
        return numbers.random(sizes) < 0.5
    if dtype.kind in "iu":
        return numbers.integers(0, 9, sizes).astype(dtype)
    return numbers.normal(size=sizes).astype(dtype)


def _features(writer: Writer, name: str, sizes: list[int], dynamic: bool) -> tuple[str, int]:
    """An input as [batch, width] of FP32."""
    values = float_of(writer, name)
    if dynamic:
        kind = writer.rng.choice(("ReduceMax", "ReduceMean", "ReduceL2"))
        values = writer.add(kind, values, axes=[len(sizes)], keepdims=1)
        sizes = [*sizes[:-1], 1]
    elif len(sizes) == 3 and writer.rng.random() < 0.5:
        writer.drawn.append("Conv")
        kernel = writer.weight(2, sizes[0], 3, 3, scale=0.3)
        values, sizes = writer.add("Conv", values, kernel, pads=[1, 1, 1, 1]), [2, *sizes[1:]]
    return writer.add("Flatten", values, axis=1), int(np.prod(sizes))


def _layer(writer: Writer, state: str, width: int) -> tuple[str, int]:
    kind = writer.rng.choice(("linear", "activation", "norm", "softmax", "reverse", "sort", "centre", "gate"))
    writer.drawn.append(kind)
    if kind == "linear":
        after = writer.rng.choice((2, 4, 7, 16))
        return writer.linear(state, width, after), after
    if kind == "activation":
        return writer.activation(state), width
    if kind == "norm":
        return writer.norm(state, width), width
    if kind == "softmax":
        return writer.add("Softmax", state, axis=1), width
    if kind == "reverse":
        order = writer.constant(list(range(width))[::-1])
        return writer.add("Gather", state, order, axis=1), width
    if kind == "sort":
        values, places = f"values_{len(writer.nodes)}", f"places_{len(writer.nodes)}"
        top = helper.make_node("TopK", [state, writer.constant([width])], [values, places], axis=1)
        writer.nodes.append(top)
        return values, width
    if kind == "centre":
        mean = writer.add("ReduceMean", state, axes=[1], keepdims=1)
        return writer.add("Sub", state, mean), width
    return writer.add("Mul", state, writer.add("Sigmoid", writer.linear(state, width, width))), width


def _output(writer: Writer, number: int, state: str, width: int) -> Any:
    kind, name = writer.rng.choice(ANSWERS), f"OUT{number}"
    shape: list[int | str] = ["batch", width]
    if kind in (INT32, INT64, BOOL):
        # What differs by a rounding error only must not decide.
        scaled = writer.add("Mul", state, writer.constant(STEPS, np.float32))
        state = writer.add("Round", writer.add("Add", scaled, writer.constant(OFFSET, np.float32)))
    if kind in (INT32, INT64):
        state = writer.add("ArgMax", state, axis=1, keepdims=1)
        shape = ["batch", 1]
    elif kind == BOOL:
        state = writer.add("Greater", state, writer.constant(0, np.float32))
    elif writer.rng.random() < 0.3:
        state = writer.add("Unsqueeze", state, writer.constant([1]))
        shape = ["batch", 1, width]
    writer.named(name, writer.add("Cast", state, to=kind))
    return tensor(name, shape, kind)
