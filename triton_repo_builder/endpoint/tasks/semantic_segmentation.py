"""Semantic segmentation: the label of each pixel of the user's own image, by the rule of transformers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.support import head_output, labels, vision
from triton_repo_builder.endpoint.tasks.task import Arrays, Kind, Postprocess, TaskPlan, architecture
from triton_repo_builder.model.graph.heads import image
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names

NAME = "semantic-segmentation"
KIND = Kind.IMAGE
OPTIONS: tuple[str, ...] = ()
ARCHITECTURES = ("ForSemanticSegmentation",)
MAP, LABELS, IDS, SHARES = "label_map", "labels", "label_ids", "shares"
OUTPUTS = (
    TensorPlan(name=MAP, data_type="TYPE_STRING", dims=(1,)),
    TensorPlan(name=LABELS, data_type="TYPE_STRING", dims=(-1,)),
    TensorPlan(name=IDS, data_type="TYPE_INT32", dims=(-1,)),
    TensorPlan(name=SHARES, data_type="TYPE_FP32", dims=(-1,)),
)


def fits(source: Source) -> bool:
    """config.json names the architecture, or labels, and there are logits of each place."""
    logits = _logits(source)
    if logits is None or not vision.images(source):
        return False
    if source.config.get("architectures"):
        return bool(architecture(source, *ARCHITECTURES))
    return logits.dims[1] in head_output.labels(source)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """The graph's scores as they are; the image's own size, and the label map, after it."""
    logits, names = _logits(source), labels.named(source)
    if logits is None or not names or logits.dims[1] not in (-1, len(names)):
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{NAME} needs an output logits [batch, labels, rows, columns] and its labels in config.json, "
            f"which names {len(names)}; the model has {head_output.shown(source)}",
            where=str(source.path),
            remedy=f"export it for {NAME} (optimum-cli export onnx --task {NAME}), or use --task tensor",
        )
    return TaskPlan(
        name=NAME,
        head=Head(
            text=image.places(labels=len(names), shape=logits.dims[2:]),
            bind={"logits": logits.name},
            oldest_opset=image.OLDEST_OPSET,
        ),
        outputs=(
            TensorPlan(name=tensor_names.SCORES, data_type="TYPE_FP32", dims=(len(names), *logits.dims[2:])),
        ),
        post=Postprocess(
            module="semantic_segmentation.py",
            inputs=(tensor_names.SCORES, tensor_names.IMAGE_SIZE),
            outputs=OUTPUTS,
            parameters=(("labels", json.dumps(names, ensure_ascii=False)),),
        ),
        reference=_reference(logits.name, names),
        unsure=_unsure(logits.name),
        loose=lambda outputs, noise: _undecided(outputs, logits.name, noise),
        facts=(("labels", list(names)),),
    )


def _logits(source: Source) -> TensorSpec | None:
    logits = source.signature.output(head_output.LOGITS)
    if logits is None and architecture(source, *ARCHITECTURES):
        logits = head_output.find(source, 4, head_output.labels(source), axis=1)
    return logits if logits is not None and len(logits.dims) == 4 else None


def _reference(
    output: str, names: Sequence[str]
) -> Callable[[Arrays, npt.NDArray[np.int64]], dict[str, npt.NDArray[np.generic]]]:
    def answer(outputs: Arrays, mask: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
        images = zip(outputs[output], outputs[tensor_names.IMAGE_SIZE], strict=True)
        maps = [labelled(scores, size)[0] for scores, size in images]
        counts = [np.bincount(places.ravel(), minlength=len(names)) for places in maps]
        orders = [[n for n in np.argsort(-count, kind="stable") if count[n]] for count in counts]
        shape = (len(maps), max(map(len, orders)))
        ids, shares = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.float32)
        texts = np.full(shape, b"", dtype=object)
        for row, order in enumerate(orders):
            ids[row, : len(order)] = order
            shares[row, : len(order)] = counts[row][order] / counts[row].sum()
            texts[row, : len(order)] = [names[number].encode() for number in order]
        files = np.array([[base64.b64encode(_png(places, len(names)))] for places in maps], dtype=object)
        return {MAP: files, LABELS: texts, IDS: ids, SHARES: shares}

    return answer


def _unsure(output: str) -> Callable[[Arrays, float], frozenset[str]]:
    """The order of the labels, if the pixels that noise may change can change it; the map itself stays."""

    def outputs_of(outputs: Arrays, noise: float) -> frozenset[str]:
        moving = _undecided(outputs, output, noise)
        counts = np.bincount(labelled(outputs[output][0], outputs[tensor_names.IMAGE_SIZE][0])[0].ravel())
        shares = np.sort(np.append(counts[counts > 0], 0))[::-1] / counts.sum()
        return frozenset({LABELS, IDS, SHARES}) if (-np.diff(shares) < 2 * moving).any() else frozenset()

    return outputs_of


def _undecided(outputs: Arrays, output: str, noise: float) -> float:
    """Share of pixels whose two best labels are nearly equal."""
    _, margin = labelled(outputs[output][0], outputs[tensor_names.IMAGE_SIZE][0])
    return float((margin < 10 * noise).mean())


def labelled(
    scores: npt.NDArray[Any], size: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """(label of each pixel, by how much it is better than the next), by whole interpolated planes.

    ``scores`` [labels, rows, columns], ``size`` rows and columns of the image.
    """
    planes = scores.astype(np.float64)
    height, width = map(int, size)
    down, across = _weights(planes.shape[1], height), _weights(planes.shape[2], width)
    best = np.full((height, width), -np.inf)
    second, label = best.copy(), np.zeros((height, width), dtype=np.int64)
    for number, plane in enumerate(planes):
        values = down @ plane @ across.T
        better = values > best
        second = np.where(better, best, np.maximum(second, values))
        best, label = np.where(better, values, best), np.where(better, number, label)
    return label, best - second


def _weights(places: int, pixels: int) -> npt.NDArray[np.float64]:
    """[pixels, places]: bilinear interpolation between the centers of places, the edges stretched."""
    at = np.clip((np.arange(pixels) + 0.5) * places / pixels - 0.5, 0, places - 1)
    distance = np.abs(at[:, None] - np.arange(places)[None, :])
    return np.asarray(np.maximum(0.0, 1 - distance))


def _png(places: npt.NDArray[np.int64], labels: int) -> bytes:
    from PIL import Image

    if labels > 256:
        image = Image.fromarray(places.astype(np.uint16))
    else:
        image = Image.fromarray(places.astype(np.uint8))
        image.putpalette([number for number in range(labels) for _ in range(3)])
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
