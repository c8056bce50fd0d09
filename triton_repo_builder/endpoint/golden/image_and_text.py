"""Records golden cases of an endpoint that takes an image and texts: each image with labels of its own.

Both inputs are made ready by transformers, and ONNX Runtime runs the untouched file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from triton_repo_builder.endpoint.golden import image, original, text
from triton_repo_builder.endpoint.golden.original import Recording
from triton_repo_builder.endpoint.golden.text import TokenizerSettings
from triton_repo_builder.endpoint.tasks.task import OriginalRun, TaskPlan
from triton_repo_builder.model.read import transformers_library
from triton_repo_builder.model.read.image_processor import ImageSpec
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository.cases import Case, CaseFile, CaseTensor

TOGETHER = "an image's answer changes with the other images and labels in the batch"


class PreparedImages(Protocol):
    """How an image becomes the graph's input."""

    @property
    def spec(self) -> ImageSpec:
        """The image's preprocessing."""

    @property
    def layout(self) -> str:
        """``NCHW`` or ``NHWC``."""


def record(
    model: original.OriginalModel,
    source: Source,
    pixels: TensorSpec,
    task: TaskPlan,
    settings: TokenizerSettings,
    prepared: PreparedImages,
    endpoint: str,
) -> Recording:
    """Golden cases; ``source`` is the model without its input ``pixels``. Raises ``TrbError``."""
    files = image.images()
    values = np.stack(image.pixels(prepared.spec, prepared.layout, files)).astype(pixels.dtype.numpy)
    library = text.library(source)
    assert task.encode is not None and task.answer is not None
    runs: list[OriginalRun] = []
    recorded: list[Case] = []
    for number, (name, data) in enumerate(files.items()):
        example = task.examples[number % len(task.examples)][1]
        rows = task.encode(library, example, settings.max_length)
        with_image = replace(model, beside={pixels.name: values[number : number + 1]})
        outputs, mask = text.run_rows(with_image, source, rows, settings)
        run = OriginalRun(tokenizer=library, example=example, rows=rows, outputs=outputs, mask=mask)
        answer = task.answer(run)
        runs.append(run)
        if not text.stable(task, run, answer, model.unsure):
            continue
        inputs = (
            CaseTensor(name=image.INPUT, datatype="BYTES", shape=(1, 1), data=(data,)),
            *(
                CaseTensor(name=field, datatype="BYTES", shape=(1, len(texts)), data=texts)
                for field, texts in example.items()
            ),
        )
        recorded.append(Case(name=name, inputs=inputs, outputs=text.outputs(task, answer, model.unsure)))
    file = CaseFile(
        endpoint=endpoint,
        recorded_with=model.recorded_with(
            source, f"transformers {transformers_library.version()} tokenizer and {prepared.spec.kind}"
        ),
        tolerance=model.tolerance(recorded),
        cases=tuple(recorded),
    )
    together = replace(model, beside={pixels.name: values})
    moved = _interaction(together, source, task, settings, runs, model.own_noise)
    return Recording(cases=file if recorded else None, batchable=True, interaction=moved)


def interaction(source: Source, recording: Recording | None) -> str:
    """Why requests must not be joined; empty if they may."""
    return original.rows_interact(source) or (recording.interaction if recording else "")


def _interaction(
    model: original.OriginalModel,
    source: Source,
    task: TaskPlan,
    settings: TokenizerSettings,
    runs: Sequence[OriginalRun],
    noise: float,
) -> str:
    """Why images and labels must not share a run, as the original's answers show it; empty if they may."""
    outputs, _ = text.run_rows(model, source, [row for run in runs for row in run.rows], settings)
    first = 0
    names = [name for name in (task.head.bind.values() if task.head else ()) if name in outputs]
    for number, run in enumerate(runs):
        own_rows = slice(first, first := first + len(run.rows))
        for name in names:
            alone, beside = run.outputs[name], outputs[name][number : number + 1, own_rows]
            if alone.shape != beside.shape:
                return f"output '{name}' does not have a row for each image and a column for each label"
            if not np.abs(alone - beside).max() <= noise * max(1.0, np.abs(alone).max()):
                return TOGETHER
    return ""
