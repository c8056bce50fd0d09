"""ONNX's ``Loop`` over groups of rows: its body is the front of a group, the user's graph and its head.

The weights stay initializers of the outer graph, which a body sees. The loop carries each
output of the graph as a tensor of all rows of the batch, into which each group writes its own rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from triton_repo_builder.base import dtypes
from triton_repo_builder.model.graph import names
from triton_repo_builder.model.graph.parts import Front
from triton_repo_builder.model.graph.ragged import (
    GROUP_END,
    GROUP_ROWS,
    GROUP_SHARED,
    GROUP_START,
    ROW_COUNT,
)

TO_THE_END = 2**63 - 1


def wrap(graph: onnx.GraphProto, front: Front) -> None:
    """Move the nodes of ``graph`` into a loop over the groups of ``front``.

    Its outputs are [rows, …] of known rank, and keep their names; the front's take the place of its inputs.
    """
    before, group = onnx.parser.parse_graph(front.text), onnx.parser.parse_graph(front.group)
    prefix = names.prefix(graph)
    outer, inner = f"{prefix}front/", f"{prefix}group/"
    group_outputs = {value.name for value in group.output} - {GROUP_ROWS, GROUP_START}
    public = {value.name for value in (*before.input, *before.output)} - set(GROUP_SHARED)
    shared = {name: outer + name for name in GROUP_SHARED}
    answers = names.set_apart(graph, [value.name for value in graph.output], f"{inner}of/")
    carries = [_Carry(value, answers[value.name], inner, front.fill) for value in graph.output]
    end, start = inner + GROUP_END, inner + GROUP_START
    number, go_on, goes_on = f"{inner}number", f"{inner}go_on", f"{inner}goes_on"
    body = helper.make_graph(
        [
            *names.prefixed(group.node, {name: name for name in group_outputs | public} | shared, inner),
            *graph.node,
            *_goes_on(start, goes_on, inner),
            *(node for carry in carries for node in carry.nodes(inner + GROUP_ROWS)),
        ],
        f"{prefix}group",
        [
            helper.make_tensor_value_info(number, TensorProto.INT64, []),
            helper.make_tensor_value_info(go_on, TensorProto.BOOL, []),
            helper.make_tensor_value_info(end, TensorProto.INT64, [1]),
            *(helper.make_tensor_value_info(carry.before, carry.type, None) for carry in carries),
        ],
        [
            helper.make_tensor_value_info(goes_on, TensorProto.BOOL, []),
            helper.make_tensor_value_info(start, TensorProto.INT64, [1]),
            *(helper.make_tensor_value_info(carry.after, carry.type, None) for carry in carries),
        ],
    )
    _move_types(graph, body)
    rows, any_rows = outer + ROW_COUNT, f"{outer}any_rows"
    outside = [
        *names.prefixed(before.node, {name: name for name in public}, outer),
        *_goes_on(rows, any_rows, outer),
        *(node for carry in carries for node in carry.start(rows)),
        helper.make_node(
            "Loop",
            ["", any_rows, rows, *(carry.empty for carry in carries)],
            [f"{outer}first_start", *(carry.result for carry in carries)],
            f"{prefix}Loop",
            body=body,
        ),
        *(node for carry in carries for node in carry.end()),
    ]
    del graph.node[:]
    graph.node.extend(outside)
    kept = [value for value in graph.input if value.name not in group_outputs]
    del graph.input[:]
    graph.input.extend([*before.input, *kept])


def _goes_on(place: str, goes_on: str, prefix: str) -> list[onnx.NodeProto]:
    """Whether there are rows before ``place``, INT64 [1]."""
    scalar, none = f"{prefix}rows_before", f"{prefix}no_row"
    zero = helper.make_tensor("value", TensorProto.INT64, [], [0])
    return [
        helper.make_node("Constant", [], [none], none, value=zero),
        helper.make_node("Squeeze", [place], [scalar], scalar),
        helper.make_node("Less", [none, scalar], [goes_on], goes_on),
    ]


class _Carry:
    """One output of the graph on its way through the loop."""

    def __init__(
        self, value: onnx.ValueInfoProto, answer: str, prefix: str, fill: Mapping[str, float]
    ) -> None:
        self.name, self._answer = value.name, answer
        self._prefix = f"{prefix}{value.name}/"
        tensor = value.type.tensor_type
        self._own_type = tensor.elem_type
        self._sizes = [dim.dim_value for dim in tensor.shape.dim[1:]]  # 0: it differs from group to group
        self._grows = 0 in self._sizes
        # ONNX Runtime pads no 16-bit floats on a CPU.
        self.type = TensorProto.FLOAT if self._grows and self._own_type in dtypes.HALF else self._own_type
        self._filler = fill.get(value.name, 0)
        self.before, self.after = f"{self._prefix}before", f"{self._prefix}after"
        self.empty = f"{self._prefix}empty"
        self.result = self.name if self.type == self._own_type else f"{self._prefix}result"

    def start(self, rows: str) -> list[onnx.NodeProto]:
        """All rows before the first group; what differs in size begins with 1."""
        nodes = [self._constant("sizes", [max(size, 1) for size in self._sizes])] if self._sizes else []
        shape = self._of("shape") if self._sizes else rows
        if self._sizes:
            nodes.append(self._node("Concat", [rows, self._of("sizes")], "shape", axis=0))
        value = helper.make_tensor("value", self.type, [1], [self._filler])
        return [*nodes, self._node("ConstantOfShape", [shape], "empty", value=value)]

    def nodes(self, rows: str) -> list[onnx.NodeProto]:
        """Nodes of the body: the group's answers in their places."""
        nodes, carried, answers = [], self.before, self._answer
        if self.type != self._own_type:
            nodes.append(self._node("Cast", [answers], "float", to=self.type))
            answers = self._of("float")
        if self._grows:
            nodes += [
                self._constant("first", [1]),
                self._constant("end", [TO_THE_END]),
                self._constant("no_rows", [0]),
                helper.make_node(
                    "Constant", [], [self._of("filler")], self._of("filler"), value=self._scalar()
                ),
                *self._tail(carried, "carried"),
                *self._tail(answers, "answers"),
                self._node("Less", [self._of("carried_tail"), self._of("answers_tail")], "larger"),
                self._node(
                    "Where", [self._of(name) for name in ("larger", "answers_tail", "carried_tail")], "both"
                ),
                *self._padded(carried, "carried"),
                *self._padded(answers, "answers"),
            ]
            carried, answers = self._of("carried_padded"), self._of("answers_padded")
        return [*nodes, self._node("ScatterND", [carried, rows, answers], "after")]

    def end(self) -> list[onnx.NodeProto]:
        """Nodes after the loop."""
        if self.result == self.name:
            return []
        return [helper.make_node("Cast", [self.result], [self.name], self._of("own_type"), to=self._own_type)]

    def _tail(self, tensor: str, name: str) -> list[onnx.NodeProto]:
        shape = self._node("Shape", [tensor], f"{name}_shape")
        ends = [self._of(end) for end in ("first", "end")]
        return [shape, self._node("Slice", [self._of(f"{name}_shape"), *ends], f"{name}_tail")]

    def _padded(self, tensor: str, name: str) -> list[onnx.NodeProto]:
        tail, missing = self._of(f"{name}_tail"), self._of(f"{name}_missing")
        none, no_rows = self._of(f"{name}_none"), self._of("no_rows")
        return [
            self._node("Sub", [self._of("both"), tail], f"{name}_missing"),
            self._node("Sub", [tail, tail], f"{name}_none"),
            self._node("Concat", [no_rows, none, no_rows, missing], f"{name}_pads", axis=0),
            self._node("Pad", [tensor, self._of(f"{name}_pads"), self._of("filler")], f"{name}_padded"),
        ]

    def _scalar(self) -> onnx.TensorProto:
        return helper.make_tensor("value", self.type, [], [self._filler])

    def _constant(self, name: str, values: list[int]) -> onnx.NodeProto:
        value = helper.make_tensor("value", TensorProto.INT64, [len(values)], values)
        return helper.make_node("Constant", [], [self._of(name)], self._of(name), value=value)

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
        return helper.make_node(operator, inputs, [self._of(output)], self._of(output), **attributes)

    def _of(self, name: str) -> str:
        return self._prefix + name


def _move_types(graph: onnx.GraphProto, body: onnx.GraphProto) -> None:
    """The types that the graph states of the tensors that are in the body now."""
    inside = {name for node in body.node for name in node.output}
    body.value_info.extend(value for value in graph.value_info if value.name in inside)
    kept = [value for value in graph.value_info if value.name not in inside]
    del graph.value_info[:]
    graph.value_info.extend(kept)
