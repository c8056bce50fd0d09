"""Tiny object detectors: the image times a matrix. DETR's outputs, or Ultralytics' export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tiny
import tiny_images
from onnx import helper, numpy_helper
from tiny_onnx import FLOAT, node, tensor

SIZE = 16
LABELS = 3
QUERIES = 12


def _graph(
    name: str,
    outputs: dict[str, tuple[list[int], Any]],
    batch: int | str,
    dtype: int,
    flat: int = 3 * SIZE * SIZE,
) -> Any:
    """Each output: sigmoid(pixels × weights) × scale + offset, in that shape."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [node("Reshape", [name, "flat"], ["row"])]
    values = [numpy_helper.from_array(np.array([-1, flat]), "flat")]
    for number, (output, (shape, ranges)) in enumerate(outputs.items()):
        scale, offset = (np.broadcast_to(part, shape).reshape(1, -1).astype(kind) for part in ranges)
        weights = tiny.weights(flat, int(np.prod(shape)), seed=number + 3).astype(kind) / 3
        for what, array in (("w", weights), ("s", scale), ("o", offset), ("d", np.array([-1, *shape]))):
            values.append(numpy_helper.from_array(array, f"{what}_{output}"))
        steps = [
            ("MatMul", ["row", f"w_{output}"], f"m_{output}"),
            ("Sigmoid", [f"m_{output}"], f"g_{output}"),
            ("Mul", [f"g_{output}", f"s_{output}"], f"x_{output}"),
            ("Add", [f"x_{output}", f"o_{output}"], f"a_{output}"),
            ("Reshape", [f"a_{output}", f"d_{output}"], output),
        ]
        nodes += [node(operator, taken, [given]) for operator, taken, given in steps]
    pixels = tensor(name, [batch, 3, SIZE, SIZE], dtype)
    given = [tensor(output, [batch, *shape], dtype) for output, (shape, _) in outputs.items()]
    return helper.make_graph(nodes, "tiny_detector", [pixels], given, values)


def detr(
    folder: Path,
    *,
    background: bool = True,
    batch: int | str = "batch",
    dtype: int = FLOAT,
    opset: int = 17,
    **config: Any,
) -> Path:
    """A folder as optimum writes it."""
    width = LABELS + background
    outputs = {
        "logits": ([QUERIES, width], (np.array(12.0), np.array(-6.0))),
        "pred_boxes": ([QUERIES, 4], (np.array([0.9, 0.9, 0.4, 0.4]), np.array([0.05, 0.05, 0.02, 0.02]))),
    }
    tiny.save(folder / "model.onnx", _graph("pixel_values", outputs, batch, dtype), opset=opset)
    processor = {**tiny_images.PROCESSOR, "size": {"height": SIZE, "width": SIZE}}
    tiny.put_json(folder / "preprocessor_config.json", processor)
    labels = {str(number): f"thing {number}" for number in range(LABELS)}
    stated = {"architectures": ["DetrForObjectDetection"], "model_type": "detr", "id2label": labels}
    tiny.put_json(folder / "config.json", {**stated, **config})
    return folder


def yolo(
    path: Path,
    *,
    end_to_end: bool = False,
    batch: int | str = "batch",
    dtype: int = FLOAT,
    opset: int = 17,
    anchors: int = 40,
    **metadata: str,
) -> Path:
    """One file as Ultralytics writes it."""
    if end_to_end:
        shape = [QUERIES, 6]
        ranges = (np.array([6, 6, 6, 6, 1, 0]), np.array([0, 0, 8, 8, 0, 1]))
    else:
        shape = [4 + LABELS, anchors]
        ranges = (
            np.array([[10, 10, 8, 8, *[1] * LABELS]]).T,
            np.array([[3, 3, 2, 2, *[0] * LABELS]]).T,
        )
    graph = _graph("images", {"output0": (shape, ranges)}, batch, dtype)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    stated = {
        "task": "detect",
        "names": str({number: f"thing {number}" for number in range(LABELS)}),
        "imgsz": str([SIZE, SIZE]),
        "stride": "32",
        "end2end": str(end_to_end),
    }
    helper.set_model_props(model, {**stated, **metadata})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path
