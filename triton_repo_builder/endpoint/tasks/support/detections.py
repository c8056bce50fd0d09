"""Object detection in numpy, in double precision and box by box: golden cases prove the heads against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks.support.reference import sigmoid, softmax
from triton_repo_builder.endpoint.tasks.task import Arrays
from triton_repo_builder.model.graph.heads.detection import BoxSelection
from triton_repo_builder.repository.tensor_names import IMAGE_SIZE

Array = npt.NDArray[Any]
CLOSE = 1e-3
"""Shares and scores that float noise may exchange."""
BOXES, LABELS, SCORES, COUNT = "boxes", "labels", "scores", "count"


@dataclass(frozen=True, kw_only=True)
class Detections:
    """One image's objects, the best first: all candidates, also below the score."""

    boxes: Array
    """[objects, 4], in the image's pixels."""
    labels: Array
    scores: Array
    certain: bool = True
    """Whether float noise leaves these objects as they are, apart from their order."""


Find = Callable[[Arrays, int], Detections]
"""The original's outputs and the number of the image → its objects."""


def by_query(logits_name: str, boxes_name: str, *, background: bool) -> Find:
    """Objects of a DETR-like graph: outputs of the labels and of the box of each query."""

    def find(outputs: Arrays, row: int) -> Detections:
        logits = outputs[logits_name][row].astype(np.float64)
        corners = _corners(outputs[boxes_name][row].astype(np.float64))
        height, width = outputs[IMAGE_SIZE][row]
        corners = corners * np.array([width, height, width, height])
        if background:
            shares = softmax(logits)[:, :-1]
            labels, scores, boxes = shares.argmax(axis=1), shares.max(axis=1), corners
        else:
            shares = sigmoid(logits)
            labels = np.tile(np.arange(shares.shape[1]), len(shares))
            scores, boxes = shares.reshape(-1), np.repeat(corners, shares.shape[1], axis=0)
        return _sorted(boxes, labels, scores)

    return find


def by_anchor(output: str, selection: BoxSelection, size: tuple[int, int]) -> Find:
    """Objects of a YOLO-like graph, whose boxes still overlap."""

    def find(outputs: Arrays, row: int) -> Detections:
        rows = outputs[output][row].astype(np.float64).T
        _check(
            output,
            rows.shape[1],
            4 + selection.labels,
            rows[:, 4:],
            np.arange(selection.labels),
            selection.labels,
        )
        labels, scores = rows[:, 4:].argmax(axis=1), rows[:, 4:].max(axis=1)
        likely = scores > selection.score
        all_found = _sorted(_corners(rows[likely, :4]), labels[likely], scores[likely])
        kept, certain = _suppressed(all_found, selection.overlap)
        kept = kept[: selection.most]
        boxes = _unboxed(all_found.boxes[kept], size, outputs[IMAGE_SIZE][row])
        labels, scores = all_found.labels[kept], all_found.scores[kept]
        return Detections(boxes=boxes, labels=labels, scores=scores, certain=certain)

    return find


def finished(output: str, selection: BoxSelection, size: tuple[int, int]) -> Find:
    """Objects of a graph that gives corners, score and label."""

    def find(outputs: Arrays, row: int) -> Detections:
        rows = outputs[output][row].astype(np.float64)
        _check(output, rows.shape[1], 6, rows[:, 4:5], rows[:, 5], selection.labels)
        boxes = _unboxed(rows[:, :4], size, outputs[IMAGE_SIZE][row])
        objects = _sorted(boxes, rows[:, 5].astype(np.int64), rows[:, 4])
        # The graph itself has left out the rest: which that is, noise may decide.
        return replace(objects, certain=bool(objects.scores[-1] <= selection.score))

    return find


def reference(
    find: Find, selection: BoxSelection, names: Sequence[str]
) -> Callable[[Arrays, npt.NDArray[np.int64]], dict[str, npt.NDArray[np.generic]]]:
    """``TaskPlan.reference``."""

    def answer(outputs: Arrays, mask: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
        rows, most = len(outputs[IMAGE_SIZE]), selection.most
        boxes = np.zeros((rows, most, 4), dtype=np.float32)
        labels = np.full((rows, most), b"", dtype=object)
        scores = np.zeros((rows, most), dtype=np.float32)
        count = np.zeros((rows, 1), dtype=np.int32)
        for row in range(rows):
            objects = find(outputs, row)
            above = np.flatnonzero(objects.scores > selection.score)[:most]
            count[row], places = len(above), slice(len(above))
            boxes[row, places], scores[row, places] = objects.boxes[above], objects.scores[above]
            labels[row, places] = [names[number].encode() for number in objects.labels[above]]
        return {BOXES: boxes, LABELS: labels, SCORES: scores, COUNT: count}

    return answer


def unsure(find: Find, selection: BoxSelection) -> Callable[[Arrays, float], frozenset[str]]:
    """``TaskPlan.unsure``: float noise may change which objects there are, or their order."""

    def outputs_of(outputs: Arrays, noise: float) -> frozenset[str]:
        objects = find(outputs, 0)
        scores = objects.scores
        if not objects.certain or (np.abs(scores - selection.score) < 10 * noise).any():
            return frozenset({BOXES, LABELS, SCORES, COUNT})
        answered = scores[scores > selection.score][: selection.most + 1]
        return frozenset({BOXES, LABELS}) if (-np.diff(answered) < 10 * noise).any() else frozenset()

    return outputs_of


def _check(output: str, width: int, expected: int, scores: Array, labels: Array, count: int) -> None:
    """``TrbError`` if the graph's output contradicts its metadata."""
    fault = ""
    if width != expected:
        fault = f"gives {width} numbers of each box, {expected} were expected"
    elif scores.size and not (scores.min() >= -CLOSE and scores.max() <= 1 + CLOSE):
        fault = f"has scores from {scores.min():.3g} to {scores.max():.3g}, which are no shares of 1"
    elif labels.size and not (labels.min() >= 0 and labels.max() < count):
        fault = f"has labels from {labels.min():g} to {labels.max():g}, and the metadata names {count}"
    if fault:
        raise TrbError(
            Code.GOLDEN_FAILED,
            f"output '{output}' {fault}: it is not the output of Ultralytics' detectors",
            remedy="export the model again with yolo export format=onnx, or use --task tensor",
        )


def _corners(boxes: Array) -> Array:
    """[center x, center y, width, height] → [left, top, right, bottom]."""
    centers, halves = boxes[:, :2], boxes[:, 2:] / 2
    return np.concatenate([centers - halves, centers + halves], axis=1)


def _sorted(boxes: Array, labels: Array, scores: Array) -> Detections:
    order = np.argsort(-scores, kind="stable")
    return Detections(boxes=boxes[order], labels=labels[order], scores=scores[order])


def _suppressed(objects: Detections, overlap: float) -> tuple[list[int], bool]:
    """The boxes that no better one of the same label covers by more than ``overlap`` of their union.

    Whether that is certain: no overlap and no order of two that overlap is decided by noise.
    """
    kept: list[int] = []
    certain = True
    for number, (box, label, score) in enumerate(
        zip(objects.boxes, objects.labels, objects.scores, strict=True)
    ):
        before = np.flatnonzero(objects.labels[:number] == label)
        shares = _overlaps(box, objects.boxes[before])
        close = np.abs(objects.scores[before] - score) < CLOSE
        certain &= not ((np.abs(shares - overlap) < CLOSE) | ((shares > overlap) & close)).any()
        if not (shares > overlap)[np.isin(before, kept)].any():
            kept.append(number)
    return kept, certain


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union with each."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides, 0).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(axis=1) - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(union), where=union > 0))


def _unboxed(boxes: Array, size: tuple[int, int], image: Array) -> Array:
    """From pixels of a letterbox to pixels of the image inside."""
    gain = min(size[0] / image[0], size[1] / image[1])
    rows, columns = (max(round(float(edge) * gain), 1) for edge in image)
    top, left = round((size[0] - rows) / 2 - 0.1), round((size[1] - columns) / 2 - 0.1)
    scale = np.array([columns / image[1], rows / image[0]] * 2)
    moved = (boxes - np.array([left, top, left, top])) / scale
    return np.asarray(np.clip(moved, 0, np.array([image[1], image[0]] * 2)))
