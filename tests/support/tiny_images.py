"""Tiny vision exports for unit tests, and a stand-in for a wheel of Pillow."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from tiny_onnx import FLOAT, node, tensor

SIZE = 8
LIBRARY = b"\x7fELF\x02" + bytes(13) + b"\x3e\x00" + b"code"
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": SIZE, "width": SIZE},
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
    "resample": 2,
}


def model(
    path: Path,
    *,
    output: str = "logits",
    width: int = 4,
    batch: int | str = "batch",
    rank: int = 2,
    softmax: bool = False,
    dtype: int = FLOAT,
    opset: int = 17,
    name: str = "pixel_values",
    channels_last: bool = False,
) -> Path:
    """Pixels times a matrix: [batch, width], or with ``rank`` 3 tokens of it, 4 places."""
    pixels = [batch, SIZE, SIZE, 3] if channels_last else [batch, 3, SIZE, SIZE]
    count = 3 * SIZE * SIZE
    shapes: dict[int, list[int | str]] = {2: [batch, width], 3: [batch, 3, width], 4: [batch, width, 3, 1]}
    tail = shapes[rank][1:]
    weights = tiny.weights(count, width * (1 if rank == 2 else 3), seed=4, dtype=dtype) / 8
    initializers = [
        numpy_helper.from_array(weights.astype(helper.tensor_dtype_to_np_dtype(dtype)), "weights"),
        numpy_helper.from_array(np.array([-1, count]), "flat"),
        numpy_helper.from_array(np.array([-1, *tail]), "shape"),
    ]
    nodes = [
        node("Reshape", [name, "flat"], ["row"]),
        node("MatMul", ["row", "weights"], ["product"]),
        node("Reshape", ["product", "shape"], ["raw" if softmax else output]),
    ]
    if softmax:
        nodes.append(node("Softmax", ["raw"], [output], axis=1))
    graph = helper.make_graph(
        nodes,
        "tiny_vision",
        [tensor(name, pixels, dtype)],
        [tensor(output, shapes[rank], dtype)],
        initializers,
    )
    return tiny.save(path, graph, opset=opset)


def folder(
    path: Path, *, processor: dict[str, Any] | None = None, config: dict[str, Any] | None = None, **graph: Any
) -> Path:
    """model.onnx, preprocessor_config.json and config.json."""
    model(path / "model.onnx", **graph)
    tiny.put_json(path / "preprocessor_config.json", PROCESSOR if processor is None else processor)
    labels = {str(number): f"thing {number}" for number in range(graph.get("width", 4))}
    default = {"architectures": ["ViTForImageClassification"], "id2label": labels}
    tiny.put_json(path / "config.json", default if config is None else config)
    return path


def any_size(folder: Path, *, processor: dict[str, Any], width: int = 4) -> Path:
    """An export for image-classification of a graph that takes images of any size."""
    nodes = [
        node("Mul", ["pixel_values", "pixel_values"], ["squares"]),
        node("ReduceMean", ["squares"], ["means"], axes=[2, 3], keepdims=0),
        node("MatMul", ["means", "weights"], ["logits"]),
    ]
    shape: list[int | str] = ["batch", 3, "rows", "columns"]
    initializers = [numpy_helper.from_array(tiny.weights(3, width, seed=4), "weights")]
    inputs, outputs = [tensor("pixel_values", shape)], [tensor("logits", ["batch", width])]
    graph = helper.make_graph(nodes, "any_size", inputs, outputs, initializers)
    tiny.save(folder / "model.onnx", graph)
    tiny.put_json(folder / "preprocessor_config.json", processor)
    labels = {str(number): f"thing {number}" for number in range(width)}
    config = {"architectures": ["ViTForImageClassification"], "id2label": labels}
    tiny.put_json(folder / "config.json", config)
    return folder


def towers(
    folder: Path,
    *,
    mixed: bool = False,
    config: dict[str, Any] | None = None,
    images: int | str = "images",
    tokens: int | str = "tokens",
) -> Path:
    """A graph with both towers, as CLIP's: the likeness of each image to each text.

    With ``mixed`` an answer changes with the other images of the batch.
    """
    ids: list[int | str] = ["texts", tokens]
    width = tiny.WIDTH
    nodes = [
        node("Gather", ["table", "input_ids"], ["words"]),
        node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
        node("Unsqueeze", ["mask", "last"], ["column"]),
        node("Mul", ["words", "column"], ["kept"]),
        node("ReduceSum", ["kept", "second"], ["text_embeds"], keepdims=0),
        node("Reshape", ["pixel_values", "flat"], ["row"]),
        node("MatMul", ["row", "weights"], ["own"]),
        node("ReduceMean", ["own"], ["mean"], axes=[0]),
        node("Sub" if mixed else "Identity", ["own", "mean"] if mixed else ["own"], ["image_embeds"]),
        node("Transpose", ["text_embeds"], ["turned"], perm=[1, 0]),
        node("MatMul", ["image_embeds", "turned"], ["logits_per_image"]),
    ]
    initializers = [
        numpy_helper.from_array(tiny.weights(tiny.ROWS, width, seed=1), "table"),
        numpy_helper.from_array(tiny.weights(3 * SIZE * SIZE, width, seed=4) / 16, "weights"),
        numpy_helper.from_array(np.array([-1, 3 * SIZE * SIZE]), "flat"),
        numpy_helper.from_array(np.array([-1]), "last"),
        numpy_helper.from_array(np.array([1]), "second"),
    ]
    graph = helper.make_graph(
        nodes,
        "towers",
        [
            tensor("input_ids", ids, TensorProto.INT64),
            tensor("pixel_values", [images, 3, SIZE, SIZE]),
            tensor("attention_mask", ids, TensorProto.INT64),
        ],
        [tensor("logits_per_image", [images, "texts"]), tensor("text_embeds", ["texts", width])],
        initializers,
    )
    tiny.save(folder / "model.onnx", graph)
    tiny.describe(folder, **(config or {"architectures": ["CLIPModel"], "model_type": "clip"}))
    tiny.put_json(folder / "preprocessor_config.json", PROCESSOR)
    return folder


def wheel(path: Path, tag: str = "310", more: Sequence[str] = (), library: bytes = LIBRARY) -> Path:
    """A wheel that looks like Pillow's for that Python."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"PIL/_imaging.cpython-{tag}-x86_64-linux-gnu.so", library)
        for name in ("PIL/__init__.py", "PIL/Image.py", "pillow.libs/libjpeg-1.so.62", *more):
            archive.writestr(name, b"x")
    return path


def file(width: int = 20, height: int = 12, kind: str = "PNG", seed: int = 0, **options: Any) -> bytes:
    """An image file of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    stream = BytesIO()
    Image.fromarray(noise).save(stream, kind, **options)
    return stream.getvalue()
