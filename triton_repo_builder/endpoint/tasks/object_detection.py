"""Object detection: boxes in pixels of the user's image, labels and scores, best first, in the graph."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.support import detections, head_output, labels, vision
from triton_repo_builder.endpoint.tasks.support.detections import Find
from triton_repo_builder.endpoint.tasks.task import Kind, TaskPlan, architecture
from triton_repo_builder.model.graph.heads import detection
from triton_repo_builder.model.graph.heads.detection import BoxSelection
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.model.read.ultralytics import Export
from triton_repo_builder.repository.tensor_names import IMAGE_SIZE

NAME = "object-detection"
KIND = Kind.IMAGE
OPTIONS = ("top_k", "score_threshold", "iou_threshold")
ARCHITECTURES = ("ForObjectDetection",)
BOXES = "pred_boxes"
SCORE, EXPORTED_SCORE, OVERLAP = 0.5, 0.25, 0.7
"""Defaults of transformers' pipeline and of ``predict`` of Ultralytics."""
MOST = 300
"""Ultralytics' ``max_det``, and RT-DETR's queries."""
QUERIES = ("num_queries", "num_detection_tokens")
BACKGROUND = ("detr", "yolos", "table-transformer")
"""Whose last logit is of no object."""
SIGMOID = ("conditional_detr", "deformable_detr", "dab-detr", "deta", "rt_detr", "rt_detr_v2", "d_fine")
"""Whose logits are of labels alone."""
FEW = ("conditional_detr", "deformable_detr", "dab-detr")
"""Whose ``post_process_object_detection`` keeps the 100 best."""


@dataclass(frozen=True, kw_only=True)
class _Form:
    """How one kind of graph is read."""

    head: str
    find: Find
    bind: dict[str, str]
    selection: BoxSelection
    names: tuple[str, ...]


def fits(source: Source) -> bool:
    """DETR's two outputs beside an architecture for them, or Ultralytics' metadata."""
    if not vision.images(source):
        return False
    if vision.export(source) is not None:
        return True
    return None not in _outputs(source)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """Scores, suppression and thresholds by the rules of transformers, or of Ultralytics."""
    export = vision.export(source)
    form = _exported(source, options, export) if export else _queries(source, options)
    selection = form.selection
    return TaskPlan(
        name=NAME,
        head=Head(
            text=form.head,
            bind=form.bind,
            strings=(("label_names", (*form.names, "")),),
            inputs=(IMAGE_SIZE,),
            oldest_opset=detection.OLDEST_OPSET,
        ),
        outputs=(
            TensorPlan(name=detections.BOXES, data_type="TYPE_FP32", dims=(selection.most, 4)),
            TensorPlan(name=detections.LABELS, data_type="TYPE_STRING", dims=(selection.most,)),
            TensorPlan(name=detections.SCORES, data_type="TYPE_FP32", dims=(selection.most,)),
            TensorPlan(name=detections.COUNT, data_type="TYPE_INT32", dims=(1,)),
        ),
        reference=detections.reference(form.find, selection, form.names),
        unsure=detections.unsure(form.find, selection),
        facts=(
            ("score_threshold", selection.score),
            *((("iou_threshold", selection.overlap),) if selection.overlap else ()),
            ("top_k", selection.most),
            ("labels", list(form.names)),
        ),
    )


def _outputs(source: Source) -> tuple[TensorSpec | None, TensorSpec | None]:
    """Logits and boxes of each query: by name, or the only ones of that size in such an architecture."""
    logits, boxes = source.signature.output(head_output.LOGITS), source.signature.output(BOXES)
    if logits is None and boxes is None and architecture(source, *ARCHITECTURES):
        boxes = head_output.find(source, 3, {4})
        # Four numbers are a box's: with four logits as well, nobody knows which is which.
        widths = {count + background for count in head_output.labels(source) for background in (0, 1)} - {4}
        logits = head_output.find(source, 3, widths)
    return logits, boxes


def _queries(source: Source, options: BuildOptions) -> _Form:
    """DETR, YOLOS, RT-DETR, D-FINE …; whether the last logit is of no object, its width tells."""
    logits, boxes = _outputs(source)
    names = labels.named(source)
    if logits is None or boxes is None or len(logits.dims) != 3 or len(boxes.dims) != 3:
        raise _refused(source, f"needs outputs logits and {BOXES} of each query")
    width = logits.dims[-1]
    if not names or width not in (len(names), len(names) + 1):
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"config.json names {len(names)} labels, output '{logits.name}' has {width}: not as many, nor "
            "one more",
            where=str(source.path),
            remedy="use the config.json that belongs to this model, or --task tensor",
        )
    background = width == len(names) + 1
    kind = str(source.config.get("model_type", ""))
    if kind in (SIGMOID if background else BACKGROUND):
        expected = "as many logits as labels" if background else "one logit more than labels, of no object"
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"a {kind} model has {expected}; config.json names {len(names)} labels, '{logits.name}' has "
            f"{width}",
            where=str(source.path),
            remedy="use the config.json that belongs to this model"
            + ("" if background else ", without a label for no object")
            + ", or --task tensor",
        )
    stated = (boxes.dims[1], *(source.config.get(key) for key in QUERIES))
    most = 100 if kind in FEW else next((n for n in stated if isinstance(n, int) and n > 0), MOST)
    selection = _selection(source, options, len(names), min(most, MOST), SCORE, 0)
    return _Form(
        head=detection.queries(selection, background=background),
        find=detections.by_query(logits.name, boxes.name, background=background),
        bind={"logits": logits.name, BOXES: boxes.name},
        selection=selection,
        names=names,
    )


def _exported(source: Source, options: BuildOptions, export: Export) -> _Form:
    """Ultralytics' output0: of anchors, or of finished boxes."""
    if options.preprocessor is not None:
        raise usage(
            "preprocessor", "does not apply: the file's own metadata describes its images", "leave it out"
        )
    output = source.signature.outputs[0]
    if len(output.dims) != 3:
        raise _refused(source, "has an output of three axes in Ultralytics' exports")
    done = export.end_to_end or output.dims[2] == 6
    overlap = 0 if done else OVERLAP
    selection = _selection(source, options, len(export.names), MOST, EXPORTED_SCORE, overlap)
    expected = 6 if done else 4 + len(export.names)
    stated = output.dims[2 if done else 1]
    if stated not in (-1, expected):
        raise _refused(source, f"expects {expected} numbers of each box, for {len(export.names)} names")
    size = export.size
    return _Form(
        head=detection.finished(selection, size) if done else detection.anchors(selection, size),
        find=detections.finished(output.name, selection, size)
        if done
        else detections.by_anchor(output.name, selection, size),
        bind={"output0": output.name},
        selection=selection,
        names=export.names,
    )


def _selection(
    source: Source, options: BuildOptions, count: int, most: int, score: float, overlap: float
) -> BoxSelection:
    return BoxSelection(
        rows=max(0, source.signature.inputs[0].dims[0]),
        labels=count,
        most=options.top_k or most,
        score=score if options.score_threshold is None else options.score_threshold,
        overlap=(overlap if options.iou_threshold is None else options.iou_threshold) if overlap else 0,
    )


def _refused(source: Source, requirement: str) -> TrbError:
    return TrbError(
        Code.TASK_UNCLEAR,
        f"{NAME} {requirement}; the model has {head_output.shown(source)}",
        where=str(source.path),
        remedy="export it for object detection, or use --task tensor",
    )
