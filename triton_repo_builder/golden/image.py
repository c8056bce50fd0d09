"""Records golden cases of an image endpoint: transformers' preprocessing, ONNX Runtime on the untouched file.

The images are small files of this package (``images/``), the same bytes for every build: JPEG and PNG, grey,
with a palette, with alpha, in CMYK, turned by EXIF, tall and wide.
"""

from __future__ import annotations

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
from triton_repo_builder.read import image_processor, transformers_library
from triton_repo_builder.read.image_processor import ImageSpec
from triton_repo_builder.read.source import Source
from triton_repo_builder.tasks.task import TaskPlan

FOLDER = Path(__file__).with_name("images")
INPUT = "IMAGE"


def images() -> dict[str, bytes]:
    """Name → file, the smallest first."""
    files = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in (".png", ".jpg")}
    return dict(sorted(files.items(), key=lambda item: (len(item[1]), item[0])))


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
    pixels = image_processor.prove(spec, list(files.values()))
    if layout == "NHWC":
        pixels = np.ascontiguousarray(np.moveaxis(pixels, 1, 3))
    answers = [_answer(model, source, task, pixels[row : row + 1]) for row in range(len(files))]
    recorded = tuple(
        Case(
            name=name,
            inputs=(CaseTensor(name=INPUT, datatype="BYTES", shape=(1, 1), data=(data,)),),
            outputs=_outputs(task, answer, model.noise),
        )
        for (name, data), answer in zip(files.items(), answers, strict=True)
    )
    obstacle = _obstacle(model, source, task, pixels, recorded) if batching else ""
    batchable = batching and not obstacle
    tools = f"transformers {transformers_library.version()} {spec.kind or 'image_transforms'}"
    file = CaseFile(
        endpoint=endpoint,
        recorded_with=original.recorded_with(source, tools),
        tolerance=tolerance.tolerance(recorded, model.noise),
        cases=recorded if batchable else tuple(map(cases.unbatched, recorded)),
    )
    return Recording(cases=file, batchable=batchable, obstacle=obstacle)


def _answer(
    model: original.OriginalModel, source: Source, task: TaskPlan, pixels: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
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
    outputs = dict(zip((output.name for output in source.signature.outputs), values, strict=True))
    return task.reference(outputs, np.ones((len(pixels), 1), dtype=np.int64))


def _outputs(task: TaskPlan, answer: Mapping[str, npt.NDArray[Any]], size: float) -> tuple[CaseTensor, ...]:
    """The answer as case tensors. Labels whose order is decided by float noise prove nothing: left out."""
    scores = answer.get("top_scores", np.zeros((1, 1)))[0]
    close = -np.diff(scores) < 10 * size
    tied = {"label"} if close[:1].any() else set()
    tied |= {"top_labels"} if close.any() else set()
    return tuple(
        cases.record(name, _wire(task.outputs, name), array)
        for name, array in sorted(answer.items())
        if name not in tied
    )


def _wire(outputs: Sequence[TensorPlan], name: str) -> str:
    planned = next(tensor for tensor in outputs if tensor.name == name)
    return "BYTES" if planned.data_type == "TYPE_STRING" else planned.data_type.removeprefix("TYPE_")


def _obstacle(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    pixels: npt.NDArray[Any],
    recorded: Sequence[Case],
) -> str:
    """Why there must be no batch; empty if answers are the same in one."""
    try:
        answer = _answer(model, source, task, pixels)
    except TrbError as error:
        return f"it fails on a batch of {len(pixels)} ({error.message})"
    noise = tolerance.tolerance(recorded, model.own_noise).batched
    for row, case in enumerate(recorded):
        for tensor in case.outputs:
            if tensor.datatype == "BYTES":
                continue
            if answer[tensor.name].shape[0] != len(pixels):
                return f"output '{tensor.name}' does not have a row for each image of a batch"
            if cases.difference(tensor, answer[tensor.name][row : row + 1]) > noise:
                return "its answer to an image changes with the other images in the batch"
    return ""
