"""Checks of nodes against the schemas of standard operators, in onnx's words, which ONNX Runtime repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx

ONNX = ("", "ai.onnx")
"""Names of the standard domain."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The compared part of an operator's schema."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: Mapping[str, str]
    required: tuple[str, ...]
    deprecated: bool
    single: tuple[int, int]
    """How many of the first inputs, and outputs, may not be left out by an empty name."""


@cache
def schema(operator: str, version: int, domain: str) -> Schema | None:
    """The schema in that version of the operator set; None if there is none."""
    try:
        definition = onnx.defs.get_schema(operator, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # a name that is not UTF-8 comes as bytes
        return None
    attributes = definition.attributes
    return Schema(
        inputs=(definition.min_input, definition.max_input),
        outputs=(definition.min_output, definition.max_output),
        attributes={name: attribute.type.name for name, attribute in attributes.items()},
        required=tuple(name for name, attribute in attributes.items() if attribute.required),
        deprecated=definition.deprecated,
        single=(_single(definition.inputs), _single(definition.outputs)),
    )


def _single(formal: Sequence[onnx.defs.OpSchema.FormalParameter]) -> int:
    options = [parameter.option == onnx.defs.OpSchema.FormalParameterOption.Single for parameter in formal]
    return options.index(False) if False in options else len(options)


def opset(model: onnx.ModelProto) -> int:
    """The version of the standard operators that a model uses; 0 if it names none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ONNX), 0)


def damaged(model: onnx.ModelProto) -> str:
    """The first node of the graph that is not as its standard operator has it; empty if all are."""
    version = opset(model)
    for node in model.graph.node:
        rules = schema(node.op_type, version, "") if node.domain in ONNX else None
        sound = rules is not None and not fault(node, rules, version)
        if not node.output or (node.domain in ONNX and not sound):
            return f"{node.op_type} '{node.name}' is not as its operator has it"
    return ""


def fault(node: onnx.NodeProto, rules: Schema, version: int) -> str:
    """The first that ``OpSchema::Verify`` of onnx refuses, types apart; empty if it takes the node."""
    if rules.deprecated:
        return f"Op registered for {node.op_type} is deprecated in domain_version of {version}"
    for role, count, (least, most) in (
        ("input", len(node.input), rules.inputs),
        ("output", len(node.output), rules.outputs),
    ):
        if not least <= count <= most:
            return f"Node ({node.name}) has {role} size {count} not in range [min={least}, max={most}]."
    for role, names, single in (
        ("input", node.input, rules.single[0]),
        ("output", node.output, rules.single[1]),
    ):
        if "" in names[:single]:
            index = [*names].index("")
            return (
                f"Node ({node.name})'s {role} {index} is marked single but has an empty string in the graph"
            )
    for attribute in node.attribute:
        # protobuf gives a name that is not UTF-8 as bytes.
        raw_name: str | bytes = attribute.name
        name = raw_name if isinstance(raw_name, str) else raw_name.decode("utf-8", "replace")
        expected = rules.attributes.get(name)
        actual = onnx.AttributeProto.AttributeType.Name(attribute.type)
        if name.startswith("__"):
            continue
        if expected is None:
            return f"Unrecognized attribute: {name} for operator {node.op_type}"
        if actual not in ("UNDEFINED", expected):
            place = f"{node.name} : {name}"
            return f"Mismatched attribute type in '{place}'. Expected: '{expected}', actual: '{actual}'"
    names = {attribute.name for attribute in node.attribute}
    lacking = next((name for name in rules.required if name not in names), "")
    return f"Required attribute '{lacking}' is missing." if lacking else ""
