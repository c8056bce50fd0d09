"""Which vision task a model has, if any: the same question for all of them."""

from __future__ import annotations

from triton_repo_builder.base.dtypes import FP16, FP32
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import image_processor, input_constants, ultralytics
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.model.read.source import Source

NAME = "pixel_values"
SOUNDS = ("input_features", "input_values")
"""Which may have four axes, too (CLAP)."""
SCORES = "logits_per_image"
"""The output of both towers that compares them."""
WORD_BOXES, FOUND_BOXES = "bbox", "pred_boxes"
"""An input of LayoutLM's kind, and an output of OWL-ViT's."""
ONE_TOWER = (
    "for labels of images export it for zero-shot-image-classification (output logits_per_image) and put its "
    "tokenizer.json beside it; for embeddings export one tower for each endpoint (transformers: "
    "CLIPVisionModelWithProjection and CLIPTextModelWithProjection; optimum: clip_vision_model and "
    "clip_text_model); or use --task tensor"
)


def image_input(signature: ModelSignature) -> TensorSpec | None:
    """The only input, if it can be images: floats, [batch, 3, rows, columns] or [batch, rows, columns, 3].

    optimum leaves the channels open.
    """
    if len(signature.inputs) != 1:
        return None
    spec = signature.inputs[0]
    if spec.dtype not in (FP32, FP16) or len(spec.dims) != 4:
        return None
    fits = 3 in (spec.dims[1], spec.dims[3]) or (spec.dims[1] == -1 and spec.name not in SOUNDS)
    return spec if fits else None


def layout(spec: TensorSpec) -> str:
    """``NHWC`` if only the last axis has three channels, else ``NCHW``."""
    return "NHWC" if spec.dims[3] == 3 and spec.dims[1] != 3 else "NCHW"


def images(source: Source) -> bool:
    """Whether the model takes images and a file describes their preprocessing."""
    described = source.preprocessor is not None or export(source) is not None
    return image_input(source.signature) is not None and described


def export(source: Source) -> ultralytics.Export | None:
    """Metadata of a detector exported by Ultralytics; None for others. Raises ``TrbError``."""
    metadata = ultralytics.export(source.signature.metadata, source.path)
    return metadata if metadata is not None and metadata.task == "detect" else None


def check(source: Source, task: str) -> None:
    """``TrbError`` if the user asked for a vision task that this model cannot have."""
    check_towers(source)
    if image_input(source.signature) is None:
        names = ", ".join(spec.name for spec in source.signature.inputs)
        fits = image_input(input_constants.without(source.signature)) is not None
        option = input_constants.hint(source.signature) if fits else ""
        once = f"give it once, {option}, or " if option else ""
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{task} needs one input of images [batch, 3, rows, columns], the model takes {names}",
            where=str(source.path),
            remedy=f"{once}export the vision model alone, or use --task tensor",
        )
    if not images(source):
        raise TrbError(
            Code.NOT_FOUND,
            f"no {image_processor.FILE} beside the model: no file describes how to preprocess images",
            where=str(source.path.parent),
            remedy="name one with --preprocessor (docs/images.md says what it holds), or use --task tensor",
        )


def towers(signature: ModelSignature) -> bool:
    """Whether the graph has both towers, of texts and of images."""
    return {NAME, "input_ids"} <= {spec.name for spec in signature.inputs}


def check_towers(source: Source) -> None:
    """``TrbError`` for a graph that wants a text and an image in every request."""
    if towers(source.signature):
        _check_more(source)
        check_files(source)
        raise TrbError(
            Code.TASK_UNCLEAR,
            "both towers, of texts and of images, are in one graph, which answers no request for one of them",
            where=str(source.path),
            remedy=ONE_TOWER,
        )


def _check_more(source: Source) -> None:
    """``TrbError`` for a graph of texts and images that is none of CLIP's kind: it reads or finds boxes."""
    boxes = source.signature.input(WORD_BOXES) is not None
    if not boxes and source.signature.output(FOUND_BOXES) is None:
        return
    reads = f"it reads pages ('{WORD_BOXES}': where each word is, as OCR finds it), and trb has no OCR"
    finds = f"it finds objects by texts ('{FOUND_BOXES}'), and no task of trb does"
    kind = str(source.config.get("model_type", ""))
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        (f"this is {kind}: " if kind else "") + (reads if boxes else finds),
        where=str(source.path),
        remedy="use --task tensor, and make its inputs in the client with transformers' processor",
    )


def check_files(source: Source) -> None:
    """``TrbError`` NOT_FOUND if labels of images could be served but for a file."""
    stated = {"tokenizer.json": source.tokenizer, image_processor.FILE: source.preprocessor}
    missing = [name for name, file in stated.items() if file is None]
    if missing and source.signature.output(SCORES) is not None:
        raise TrbError(
            Code.NOT_FOUND,
            f"no {' and no '.join(missing)} beside the model, which takes texts and images",
            where=str(source.path.parent),
            remedy="put what the exporter left behind beside it, or name the original's folder with "
            "--from-model; or use --task tensor",
        )
