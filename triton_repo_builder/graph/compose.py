"""Puts a head after a user's graph. The user's nodes and weights are not touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import helper

from triton_repo_builder.errors import Exit, TrbError
from triton_repo_builder.graph import reader
from triton_repo_builder.plan import Head
from triton_repo_builder.releases import Release

PREFIX = "trb/"
OLDEST_OPSET = 11
"""CumSum and GatherElements are younger than older opsets."""


def compose(path: Path, *, weights: str, head: Head | None, release: Release) -> bytes:
    """The served ``model.onnx``: the skeleton of the model at ``path`` with ``head`` after it.

    ``weights`` is the name under which the user's file will lie beside it. Without a head only the IR
    version changes. Raises ``TrbError`` TOO_NEW, UNSUPPORTED_MODEL.
    """
    model = reader.load(path, location=weights)
    if head is not None:
        _append(model, head, path)
    model.ir_version = min(model.ir_version, release.max_ir)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _append(model: onnx.ModelProto, head: Head, path: Path) -> None:
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < OLDEST_OPSET:
        raise TrbError(
            Exit.UNSUPPORTED_MODEL,
            f"opset {opset} is too old for a head in the graph",
            where=str(path),
            remedy=f"export with opset {OLDEST_OPSET} or newer, or use --task tensor",
        )
    graph = onnx.parser.parse_graph(head.text)
    outputs = {value.name for value in graph.output}
    moved = _make_room(model.graph, outputs, path)
    rename = {name: moved.get(tensor, tensor) for name, tensor in head.bind.items()}
    rename |= {name: name for name in outputs}
    for name, values in head.strings:
        rename[name] = PREFIX + name
        encoded = [value.encode() for value in values]
        model.graph.initializer.append(
            helper.make_tensor(PREFIX + name, onnx.TensorProto.STRING, [len(values)], encoded)
        )
    for number, node in enumerate(graph.node):
        added = model.graph.node.add()
        added.CopyFrom(node)
        added.name = f"{PREFIX}{number}/{node.op_type}"
        added.input[:] = [rename.get(name, PREFIX + name) for name in node.input]
        added.output[:] = [rename.get(name, PREFIX + name) for name in node.output]
    mask = rename.get("attention_mask")
    if mask and all(value.name != mask for value in model.graph.input):
        # The model itself takes no mask; pooling needs one, so the served model does.
        model.graph.input.append(helper.make_tensor_value_info(mask, onnx.TensorProto.INT64, ["B", "T"]))
    del model.graph.output[:]
    model.graph.output.extend(graph.output)
    # Before IR 4 an initializer had to be an input as well, which ours is not.
    model.ir_version = max(model.ir_version, 4)


def _make_room(graph: onnx.GraphProto, names: set[str], path: Path) -> dict[str, str]:
    """Rename the user's inner tensors that are called like one of our outputs; returns old → new."""
    taken = sorted(names & {value.name for value in graph.input})
    if taken:
        raise TrbError(
            Exit.UNSUPPORTED_MODEL,
            f"the model has an input called '{taken[0]}', as our output is",
            where=str(path),
            remedy="rename the input and export again, or use --task tensor",
        )
    moved = {name: f"{PREFIX}user/{name}" for name in names}
    for tensor in (*graph.initializer, *graph.value_info):
        tensor.name = moved.get(tensor.name, tensor.name)
    _rename(graph, moved)
    return moved


def _rename(graph: onnx.GraphProto, moved: Mapping[str, str]) -> None:
    """In the nodes of ``graph`` and of the subgraphs of If, Loop and Scan, which see outer tensors."""
    for node in graph.node:
        node.input[:] = [moved.get(name, name) for name in node.input]
        node.output[:] = [moved.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, moved)
