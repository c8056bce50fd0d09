"""Records golden cases of an endpoint that takes files: images or audio, made ready by transformers.

ONNX Runtime runs the untouched file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import original, probabilities, tolerance
from triton_repo_builder.endpoint.golden.original import Recording
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.task import TaskPlan
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import cases
from triton_repo_builder.repository.cases import Case, CaseFile, CaseTensor
from triton_repo_builder.repository.tensor_names import IMAGE_SIZE

CHANGES = "its answer to a file changes with the others in the batch"
UNSURE = (
    "no golden case: what is found in trb's own files depends on float noise, so trb smoke cannot compare any"
)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files that are sent, and the graph's inputs for them."""

    field: str
    """The endpoint's input."""
    files: Mapping[str, bytes]
    values: Sequence[npt.NDArray[Any]]
    """One array for each file, perhaps of different shapes."""
    sizes: npt.NDArray[Any]
    """Rows and columns of images, which some tasks need besides; zeros for audio."""
    tools: str
    """Tools that made the values."""


def record(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    media_files: Files,
    endpoint: str,
    *,
    batching: bool,
) -> Recording:
    """Golden cases. Raises ``TrbError``."""
    runs = [
        run(model, source, value[None], media_files.sizes[row : row + 1])
        for row, value in enumerate(media_files.values)
    ]
    whole = np.ones((1, 1))
    probabilities.refuse(source, task.name, task.softmaxed, [(outputs, whole) for outputs in runs])
    several = len({value.shape for value in media_files.values}) > 1
    recorded = tuple(
        Case(
            name=name,
            inputs=(CaseTensor(name=media_files.field, datatype="BYTES", shape=(1, 1), data=(data,)),),
            outputs=_outputs(task, outputs, model.unsure),
            group=" x ".join(map(str, value.shape)) if several else "",
        )
        for (name, data), value, outputs in zip(
            media_files.files.items(), media_files.values, runs, strict=True
        )
    )
    obstacle = _obstacle(model, source, task, media_files, runs, recorded) if batching else ""
    batchable = batching and not obstacle
    recorded = tuple(case for case in recorded if case.outputs)
    if not recorded:
        return Recording(cases=None, batchable=batchable, obstacle=obstacle, notes=(UNSURE,))
    allowed = model.tolerance(recorded)
    if task.loose is not None:
        share = max(task.loose(run, model.unsure) for run in runs)
        allowed = tolerance.at_least(allowed, share)
    file = CaseFile(
        endpoint=endpoint,
        recorded_with=model.recorded_with(source, media_files.tools),
        tolerance=allowed,
        cases=recorded if batchable else tuple(map(cases.unbatched, recorded)),
    )
    return Recording(cases=file, batchable=batchable, obstacle=obstacle)


def run(
    model: original.OriginalModel, source: Source, pixels: npt.NDArray[Any], sizes: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """The original's answer, and the sizes of images, which some tasks also need."""
    spec = source.signature.inputs[0]
    try:
        values = model.run(None, {spec.name: pixels.astype(spec.dtype.numpy)})
    except TrbError:
        raise
    except Exception as error:
        shape = " x ".join(map(str, pixels.shape))
        raise TrbError(
            Code.GOLDEN_FAILED,
            f"the original model fails on {spec.name} of {shape}: {original.first_line(error)}",
            where=str(source.path),
            remedy="use the preprocessor_config.json that belongs to this model",
        ) from None
    return {
        **dict(zip((output.name for output in source.signature.outputs), values, strict=True)),
        IMAGE_SIZE: sizes,
    }


def answer_of(task: TaskPlan, outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The endpoint's answer, computed from the original model's outputs."""
    return task.reference(outputs, np.ones((len(outputs[IMAGE_SIZE]), 1), dtype=np.int64))


def _outputs(task: TaskPlan, outputs: Mapping[str, npt.NDArray[Any]], noise: float) -> tuple[CaseTensor, ...]:
    """The answer as case tensors. Results decided by float noise prove nothing: left out."""
    answer = answer_of(task, outputs)
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
    media_files: Files,
    runs: Sequence[Mapping[str, npt.NDArray[Any]]],
    recorded: Sequence[Case],
) -> str:
    """Why there must be no batch; empty if answers are the same in one."""
    ((shape, _),) = Counter(value.shape for value in media_files.values).most_common(1)
    same_shape = [row for row, value in enumerate(media_files.values) if value.shape == shape]
    pixels, sizes = np.stack([media_files.values[row] for row in same_shape]), media_files.sizes[same_shape]
    runs, alone = [runs[row] for row in same_shape], [recorded[row].outputs for row in same_shape]
    if len(same_shape) == 1:  # every file has a shape of its own: the mirrored one is beside it
        pixels, sizes = np.concatenate([pixels, pixels[..., ::-1]]), np.concatenate([sizes, sizes])
        runs.append(run(model, source, pixels[1:], sizes[1:]))
        alone.append(_outputs(task, runs[1], model.unsure))
    try:
        together = run(model, source, pixels, sizes)
    except TrbError as error:
        return f"it fails on a batch of {len(pixels)} ({error.message})"
    if task.unsure:  # noise may change a choice from the model's outputs, so these are compared
        return _interaction(runs, together, model.own_noise)
    answer, noise = answer_of(task, together), tolerance.tolerance(recorded, model.own_noise).batched
    for row, outputs in enumerate(alone):
        for tensor in outputs:
            if tensor.datatype == "BYTES":
                continue
            if answer[tensor.name].shape[0] != len(pixels):
                return f"output '{tensor.name}' does not have a row for each file of a batch"
            if cases.difference(tensor, answer[tensor.name][row : row + 1]) > noise:
                return CHANGES
    return ""


def _interaction(
    runs: Sequence[Mapping[str, npt.NDArray[Any]]], together: Mapping[str, npt.NDArray[Any]], noise: float
) -> str:
    """Why the model's outputs for a batch differ from its outputs for single images; empty if they do not."""
    for name, batch in together.items():
        if batch.shape[0] != len(runs):
            return f"output '{name}' does not have a row for each file of a batch"
        alone = np.concatenate([run[name] for run in runs]).astype(np.float64)
        if not np.abs(alone - batch).max() <= noise * max(1.0, np.abs(alone).max()):
            return CHANGES
    return ""
