"""Sizes that ONNX Runtime infers here and an older release's does not (``operators.toml``, shapes).

What such an operator gives passes through one whose own answer nothing can infer, so that everything after it
is unknown as well. Needs onnx: for trb's own inference, and for our backend (``ort_older.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

PREFIX = "trb_hidden_"


def hide(model: onnx.ModelProto, infers: Callable[[str, int], str]) -> bool:
    """Hide in this graph the sizes that are not inferred; whether there are any.

    ``infers``: how much of a standard operator's output is, by its name and the operator set: ``sizes``,
    ``rank`` or ``nothing``.
    """
    changed = False
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    for graph in _graphs(model.graph):
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            graph.node.append(node)
            kept = infers(node.op_type, opset) if node.domain in ("", "ai.onnx") else "sizes"
            if kept != "sizes" and node.output:
                changed = True
                graph.node.append(_behind(graph.node[-1], rank=kept == "rank"))
    if changed:
        for name in ("starts", "ends", "shape"):
            value = onnx.helper.make_tensor_value_info(PREFIX + name, onnx.TensorProto.INT64, ("unknown",))
            model.graph.input.append(value)
    return changed


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, and those of If, Loop and Scan in it at any depth."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _behind(node: onnx.NodeProto, *, rank: bool) -> onnx.NodeProto:
    """A node that takes this one's answer, and gives it under its name with the rank alone, or without it."""
    name = node.output[0]
    node.output[0] = PREFIX + name
    if rank:
        return onnx.helper.make_node(
            "Slice", [node.output[0], f"{PREFIX}starts", f"{PREFIX}ends"], [name], name=PREFIX + name
        )
    return onnx.helper.make_node("Reshape", [node.output[0], f"{PREFIX}shape"], [name], name=PREFIX + name)
