"""New nodes under names of their own, and the constants that they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from triton_repo_builder.model.graph.packing.facts import GraphFacts


class GraphConstants:
    """Initializers to be, each made once."""

    def __init__(self, facts: GraphFacts, prefix: str) -> None:
        self._facts, self._prefix = facts, prefix
        self.tensors: dict[str, onnx.TensorProto] = {}

    def sizes(self, *values: int) -> str:
        """The name of an INT64 tensor of one axis."""
        name = f"{self._prefix}sizes/{'_'.join(map(str, values))}"
        self.tensors.setdefault(name, helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def true(self) -> str:
        """The name of a BOOL scalar."""
        name = f"{self._prefix}true"
        self.tensors.setdefault(name, helper.make_tensor(name, TensorProto.BOOL, [], [True]))
        return name

    def is_known(self, name: str) -> bool:
        """Whether the numbers of a tensor of the graph are known."""
        return self._facts.value(name) is not None

    def known(self, name: str) -> str:
        """The name by which a node reads a tensor of the graph: a constant if its numbers are known."""
        value = self._facts.value(name)
        if value is None or name in self._facts.initializers:
            return name
        constant = f"{self._prefix}known/{name}"
        self.tensors.setdefault(constant, numpy_helper.from_array(np.array(value, order="C"), constant))
        return constant


class Nodes:
    """Nodes in order, their outputs under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []

    def name(self, name: str) -> str:
        """The name with the prefix."""
        return self.prefix + name

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        """A node with one output, whose full name is ``output``."""
        self.nodes.append(helper.make_node(kind, list(inputs), [output], output, **attributes))
        return output

    def copy(self, node: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
        """A node of the user's between other tensors, named like its first output."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = next(name for name in outputs if name)
        copy.input[:] = inputs
        copy.output[:] = outputs
        self.nodes.append(copy)
        return copy
