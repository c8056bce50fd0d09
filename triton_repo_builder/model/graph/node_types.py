"""Element types on their way through a graph, by the schemas: finds types that no kernel accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from typing import NamedTuple

import onnx
from onnx.defs import OpSchema

_OPTION = OpSchema.FormalParameterOption


class OperatorParameter(NamedTuple):
    """An input or output of an operator: the name of its type, and what that may be."""

    name: str
    type: str
    allowed: frozenset[str]
    variadic: bool
    mixed: bool
    """Whether each value of a variadic one may have a type of its own."""


def faults(
    graph: onnx.GraphProto, versions: Mapping[str, int], foreign: Set[tuple[str, str]]
) -> Iterator[str]:
    """The first node of the graph itself that ONNX Runtime refuses for its types, in its words.

    ``foreign`` are the operators that ONNX's schemas say nothing about: the model's own functions.
    """
    types = {value.name: _type(value) for value in graph.input}
    types |= {tensor.name: _element(tensor.data_type) for tensor in graph.initializer}
    stated = {value.name: _type(value) for value in graph.output}
    for node in graph.node:
        version = versions.get("" if node.domain == "ai.onnx" else node.domain, 0)
        if (node.domain, node.op_type) in foreign or version < 1:
            continue
        sides = parameters(node.op_type, version, "" if node.domain == "ai.onnx" else node.domain)
        if sides is None:
            continue
        bound: dict[str, str] = {}
        for name, parameter in _pairs(node.input, sides[0]):
            kind = types.get(name, "")
            if not kind or parameter.mixed:
                continue
            if kind not in parameter.allowed:
                yield (
                    f"This is an invalid model. Type Error: Type '{kind}' of input parameter ({name}) of "
                    f"operator ({node.op_type}) in node ({node.name}) is invalid."
                )
                return
            if bound.setdefault(parameter.type, kind) != kind:
                yield (
                    f"Type Error: Type parameter ({parameter.type}) of Optype ({node.op_type}) bound to "
                    f"different types ({bound[parameter.type]} and {kind} in node ({node.name})."
                )
                return
        for name, parameter in _pairs(node.output, sides[1]):
            only = next(iter(parameter.allowed)) if len(parameter.allowed) == 1 else ""
            types[name] = only or bound.get(parameter.type, "") or _chosen(node)
            if name in stated and types[name] and stated[name] not in ("", types[name]):
                yield (
                    f"Type Error: Type ({stated[name]}) of output arg ({name}) of node ({node.name}) does "
                    f"not match expected type ({types[name]})."
                )
                return


def _chosen(node: onnx.NodeProto) -> str:
    """The type of the only output where an attribute alone decides it; empty for all other operators."""
    for attribute in node.attribute:
        if (node.op_type, attribute.name) == ("Cast", "to"):
            return _element(attribute.i)
        if (node.op_type, attribute.name) in (("Constant", "value"), ("ConstantOfShape", "value")):
            return _element(attribute.t.data_type)
    return ""


@cache
def parameters(
    operator: str, version: int, domain: str
) -> tuple[tuple[OperatorParameter, ...], tuple[OperatorParameter, ...]] | None:
    """The inputs and outputs of an operator; None if ONNX does not have it."""
    try:
        schema = onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None
    allowed = {item.type_param_str: frozenset(item.allowed_type_strs) for item in schema.type_constraints}
    inputs, outputs = (
        tuple(
            OperatorParameter(
                name=each.name,
                type=each.type_str,
                allowed=allowed.get(each.type_str, frozenset({each.type_str})),
                variadic=each.option == _OPTION.Variadic,
                mixed=each.option == _OPTION.Variadic and not each.is_homogeneous,
            )
            for each in side
        )
        for side in (schema.inputs, schema.outputs)
    )
    return inputs, outputs


def _pairs(
    names: Iterable[str], side: tuple[OperatorParameter, ...]
) -> Iterator[tuple[str, OperatorParameter]]:
    """Each name with its parameter; a variadic one, the last, takes all that follow."""
    for index, name in enumerate(names):
        parameter = side[index] if index < len(side) else side[-1] if side and side[-1].variadic else None
        if name and parameter is not None:
            yield name, parameter


def _type(value: onnx.ValueInfoProto) -> str:
    return _element(value.type.tensor_type.elem_type) if value.type.HasField("tensor_type") else ""


def _element(number: int) -> str:
    try:
        name = onnx.TensorProto.DataType.Name(number)
    except ValueError:
        return ""
    return f"tensor({name.lower()})" if number else ""
