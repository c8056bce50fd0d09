"""Writes a random ONNX graph node by node; what ``random_text`` and ``random_tensors`` share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from onnx import helper, numpy_helper
from tiny_onnx import FLOAT, node

Array = np.ndarray[Any, Any]
Rows = Sequence[dict[str, Array]]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model with the rows that it is asked: each row is one element of the batch axis of every input."""

    name: str
    model: Path
    options: dict[str, Any]
    """Of ``trb build``, besides model and output."""
    rows: Rows
    about: str
    """What was drawn, for the message of a difference."""


@dataclass
class Writer:
    """Nodes and weights of one graph; ``add`` gives the name of a node's output."""

    rng: random.Random
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output."""
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(node(operator, list(inputs), [name], **attributes))
        return name

    def named(self, name: str, tensor: str) -> str:
        """Call a tensor so, as an output must be."""
        self.nodes.append(node("Identity", [tensor], [name]))
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add an initializer."""
        name = f"const_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Add random weights; activations keep their size unless ``scale`` says otherwise."""
        seed = self.rng.randrange(2**31)
        factor = scale if scale is not None else 1 / np.sqrt(shape[0])
        return self.constant(tiny.weights(*shape, seed=seed) * factor, np.float32)

    def linear(self, tensor: str, before: int, after: int) -> str:
        """A matrix and a bias."""
        return self.add(
            "Add",
            self.add("MatMul", tensor, self.weight(before, after)),
            self.weight(after, scale=0.1),
        )

    def activation(self, tensor: str) -> str:
        """A function of each element."""
        kind = self.rng.choice(("Relu", "Tanh", "Sigmoid", "Softplus", "Elu", "Sin", "gelu"))
        self.drawn.append(kind)
        if kind != "gelu":
            return self.add(kind, tensor)
        scaled = self.add("Mul", tensor, self.constant(1 / np.sqrt(2), np.float32))
        gate = self.add("Add", self.add("Erf", scaled), self.constant(1, np.float32))
        return self.add("Mul", self.add("Mul", tensor, gate), self.constant(0.5, np.float32))

    def norm(self, tensor: str, width: int) -> str:
        """LayerNormalization over the last axis."""
        scale = self.add("Add", self.weight(width, scale=0.1), self.constant(1, np.float32))
        return self.add("LayerNormalization", tensor, scale, self.weight(width, scale=0.1), axis=-1)

    def save(self, path: Path, inputs: Sequence[Any], outputs: Sequence[Any], opset: int = 17) -> Path:
        """Write the model."""
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, initializer=self.initializers)
        return tiny.save(path, graph, opset=opset)


def float_of(writer: Writer, tensor: str) -> str:
    """The tensor as FP32."""
    return writer.add("Cast", tensor, to=FLOAT)
