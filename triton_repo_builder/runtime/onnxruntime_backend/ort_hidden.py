"""Sizes that an older release's ONNX Runtime does not infer, or not as here (``operators.toml``, shapes).

What such an operator gives passes through one whose own answer nothing can infer, so that everything after it
is unknown as well; a pooling gets attributes that give the older size. Needs onnx: for trb's own inference,
and for our backend (``ort_older.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

PREFIX = "trb_hidden_"
WINDOW = ("kernel_shape", "pads", "strides", "dilations")
LARGE = 2**31
"""No size of a window; the products of two smaller ones fit an attribute."""


def hide(model: onnx.ModelProto, infers: Callable[[str, int], str]) -> bool:
    """Hide the sizes that are not inferred, and change those that are others; whether there are any.

    ``infers``: how a standard operator's output is, by its name and the operator set: ``sizes``, ``windows``,
    ``rank`` or ``nothing``.
    """
    hidden = changed = False
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    for graph in _graphs(model.graph):
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            graph.node.append(node)
            kept = infers(node.op_type, opset) if node.domain in ("", "ai.onnx") else "sizes"
            if kept == "windows":
                changed |= _whole_windows(graph.node[-1])
            elif kept != "sizes" and node.output:
                hidden = True
                graph.node.append(_behind(graph.node[-1], rank=kept == "rank"))
    if hidden:
        for name in ("starts", "ends", "shape"):
            value = onnx.helper.make_tensor_value_info(PREFIX + name, onnx.TensorProto.INT64, ("unknown",))
            model.graph.input.append(value)
    return hidden or changed


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, and those of If, Loop and Scan in it at any depth."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _whole_windows(node: onnx.NodeProto) -> bool:
    """Round this pooling's size down with more padding behind, instead of up; whether it rounds up.

    Rounded up, a window may begin in the padding behind the input. Where none may, the number of windows is
    that of ``ceil_mode`` 0 with up to a stride less one more padding, below the extent of the kernel; with
    the padding of SAME none does.
    """
    given = {attribute.name: attribute for attribute in node.attribute}
    rounding, padding = (given.get(name, onnx.AttributeProto()) for name in ("ceil_mode", "auto_pad"))
    lists = [list(given[name].ints) if name in given else [] for name in WINDOW]
    if not rounding.i or any(abs(size) > LARGE for sizes in lists for size in sizes):
        return False
    kernel, pads, strides, dilations = lists
    changed: dict[str, list[int]] = {"ceil_mode": []}
    if pads or not padding.s.startswith(b"SAME"):  # as inference sees it: pads count even beside auto_pad
        dims = len(kernel)
        # ONNX Runtime wants padding below the kernel's own size: one without dilations, of the same extent.
        extent = [(size - 1) * step + 1 for size, step in zip(kernel, dilations or [1] * dims, strict=False)]
        pads = pads or [0] * dims * 2
        more = zip(pads[dims:], strides or [1] * dims, extent, strict=False)
        ends = [min(pad + stride, size) - 1 for pad, stride, size in more]
        changed |= {"auto_pad": [], "kernel_shape": extent, "pads": [*pads[:dims], *ends], "dilations": []}
    kept = [attribute for attribute in node.attribute if attribute.name not in changed]
    made = [onnx.helper.make_attribute(name, sizes) for name, sizes in changed.items() if sizes]
    del node.attribute[:]
    node.attribute.extend([*kept, *made])
    return True


def _behind(node: onnx.NodeProto, *, rank: bool) -> onnx.NodeProto:
    """A node that takes this one's answer, and gives it under its name with the rank alone, or without it."""
    name = node.output[0]
    node.output[0] = PREFIX + name
    if rank:
        return onnx.helper.make_node(
            "Slice", [node.output[0], f"{PREFIX}starts", f"{PREFIX}ends"], [name], name=PREFIX + name
        )
    return onnx.helper.make_node("Reshape", [node.output[0], f"{PREFIX}shape"], [name], name=PREFIX + name)
