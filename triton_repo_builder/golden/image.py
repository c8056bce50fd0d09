"""Records golden cases of an image endpoint: transformers' preprocessing, ONNX Runtime on the untouched file.

The images are small files of this package (``images/``), the same bytes for every build: JPEG and PNG, grey,
with a palette, with alpha, in CMYK, turned by EXIF, tall and wide.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.golden import cases, original, tolerance
from triton_repo_builder.golden.cases import Case, CaseFile, CaseTensor
from triton_repo_builder.golden.original import Recording
from triton_repo_builder.plan.model import TensorPlan
from triton_repo_builder.plan.tensors import IMAGE_SIZE
from triton_repo_builder.read import image_processor, transformers_library
from triton_repo_builder.read.image_processor import ImageSpec
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.task import TaskPlan

FOLDER = Path(__file__).with_name("images")
INPUT = "IMAGE"
CHANGES = "its answer to an image changes with the other images in the batch"
UNSURE = (
    "no golden case: which objects are found in trb's own images depends on float noise, so trb smoke cannot "
    "compare any"
)


def images() -> dict[str, bytes]:
    """Name → file, the smallest first."""
    files = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in (".png", ".jpg")}
    return dict(sorted(files.items(), key=lambda item: (len(item[1]), item[0])))


def pixels(spec: ImageSpec, layout: str, files: Mapping[str, bytes]) -> npt.NDArray[Any]:
    """What the graph takes for these files; the served code gives the same, else ``TrbError``."""
    values = image_processor.prove(spec, list(files.values()))
    return np.ascontiguousarray(np.moveaxis(values, 1, 3)) if layout == "NHWC" else values


def record(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    spec: ImageSpec,
    layout: str,
    endpoint: str,
    *,
    batching: bool,
) -> Recording:
    """Golden cases, after a proof that the served code gives the same pixels. Raises ``TrbError``."""
    files = images()
    values = pixels(spec, layout, files)
    sizes = np.array([_size(data) for data in files.values()])
    runs = [_run(model, source, values[row : row + 1], sizes[row : row + 1]) for row in range(len(files))]
    recorded = tuple(
        Case(
            name=name,
            inputs=(CaseTensor(name=INPUT, datatype="BYTES", shape=(1, 1), data=(data,)),),
            outputs=_outputs(task, outputs, model.noise),
        )
        for (name, data), outputs in zip(files.items(), runs, strict=True)
    )
    obstacle = _obstacle(model, source, task, values, sizes, runs, recorded) if batching else ""
    batchable = batching and not obstacle
    recorded = tuple(case for case in recorded if case.outputs)
    if not recorded:
        return Recording(cases=None, batchable=batchable, obstacle=obstacle, notes=(UNSURE,))
    tools = f"transformers {transformers_library.version()} {spec.kind or 'image_transforms'}"
    if spec.letterbox is not None:
        tools = "LetterBox of Ultralytics"
    allowed = tolerance.tolerance(recorded, model.noise)
    if task.loose is not None:
        share = max(task.loose(run, model.noise) for run in runs)
        allowed = tolerance.at_least(allowed, share)
    file = CaseFile(
        endpoint=endpoint,
        recorded_with=original.recorded_with(source, tools),
        tolerance=allowed,
        cases=recorded if batchable else tuple(map(cases.unbatched, recorded)),
    )
    return Recording(cases=file, batchable=batchable, obstacle=obstacle)


def _size(data: bytes) -> tuple[int, int]:
    """Rows and columns of an image file, turned as its EXIF orientation says."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return image.height, image.width


def _run(
    model: original.OriginalModel, source: Source, pixels: npt.NDArray[Any], sizes: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """What the original answers, and the images' sizes, which some tasks need beside it."""
    spec = source.signature.inputs[0]
    try:
        values = model.run(None, {spec.name: pixels.astype(spec.dtype.numpy)})
    except Exception as error:
        shape = " x ".join(map(str, pixels.shape))
        raise TrbError(
            Code.GOLDEN_FAILED,
            f"the original model fails on pixel_values of {shape}: {original.first_line(error)}",
            where=str(source.path),
            remedy="use the preprocessor_config.json that belongs to this model",
        ) from None
    return {
        **dict(zip((output.name for output in source.signature.outputs), values, strict=True)),
        IMAGE_SIZE: sizes,
    }


def _answer(task: TaskPlan, outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return task.reference(outputs, np.ones((len(outputs[IMAGE_SIZE]), 1), dtype=np.int64))


def _outputs(task: TaskPlan, outputs: Mapping[str, npt.NDArray[Any]], noise: float) -> tuple[CaseTensor, ...]:
    """The answer as case tensors. What is decided by float noise proves nothing: left out."""
    answer = _answer(task, outputs)
    tied = task.unsure(outputs, noise) if task.unsure else _tied(answer, noise)
    return tuple(
        cases.record(name, _wire(task.answers, name), array)
        for name, array in sorted(answer.items())
        if name not in tied
    )


def _tied(answer: Mapping[str, npt.NDArray[Any]], noise: float) -> set[str]:
    """Labels whose scores are equal but for noise."""
    close = -np.diff(answer.get("top_scores", np.zeros((1, 1)))[0]) < 10 * noise
    return ({"label"} if close[:1].any() else set()) | ({"top_labels"} if close.any() else set())


def _wire(outputs: Sequence[TensorPlan], name: str) -> str:
    planned = next(tensor for tensor in outputs if tensor.name == name)
    return "BYTES" if planned.data_type == "TYPE_STRING" else planned.data_type.removeprefix("TYPE_")


def _obstacle(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    pixels: npt.NDArray[Any],
    sizes: npt.NDArray[Any],
    runs: Sequence[Mapping[str, npt.NDArray[Any]]],
    recorded: Sequence[Case],
) -> str:
    """Why there must be no batch; empty if answers are the same in one."""
    try:
        together = _run(model, source, pixels, sizes)
    except TrbError as error:
        return f"it fails on a batch of {len(pixels)} ({error.message})"
    if task.unsure:  # noise may change what is chosen from the model's outputs, so these are compared
        return _moved(runs, together, model.own_noise)
    answer, noise = _answer(task, together), tolerance.tolerance(recorded, model.own_noise).batched
    for row, case in enumerate(recorded):
        for tensor in case.outputs:
            if tensor.datatype == "BYTES":
                continue
            if answer[tensor.name].shape[0] != len(pixels):
                return f"output '{tensor.name}' does not have a row for each image of a batch"
            if cases.difference(tensor, answer[tensor.name][row : row + 1]) > noise:
                return CHANGES
    return ""


def _moved(
    runs: Sequence[Mapping[str, npt.NDArray[Any]]], together: Mapping[str, npt.NDArray[Any]], noise: float
) -> str:
    """Why the model's outputs for a batch are not those for its images alone; empty if they are."""
    for name, batch in together.items():
        if batch.shape[0] != len(runs):
            return f"output '{name}' does not have a row for each image of a batch"
        alone = np.concatenate([run[name] for run in runs]).astype(np.float64)
        if not np.abs(alone - batch).max() <= noise * max(1.0, np.abs(alone).max()):
            return CHANGES
    return ""
