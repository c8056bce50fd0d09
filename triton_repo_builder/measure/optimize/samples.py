"""Samples of a model's own kind of input, the answers to them, and feeds to time.

Texts go through the model's tokenizer, images and sounds through its preprocessing; a model of tensors gets
generated numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import audio, image, input_sizes, media, text
from triton_repo_builder.endpoint.golden import tensor as golden_tensor
from triton_repo_builder.endpoint.golden.input_sizes import AxisSizes
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.plan import text as text_plan
from triton_repo_builder.endpoint.plan.kinds import KINDS
from triton_repo_builder.endpoint.tasks.support.examples import of_lines
from triton_repo_builder.endpoint.tasks.task import Example, Kind, TaskPlan
from triton_repo_builder.measure.bench.load import texts as corpus
from triton_repo_builder.model.graph import reader
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.produce.request import Requested

Answer = dict[str, npt.NDArray[Any]]
Feeds = dict[str, npt.NDArray[Any]]

TEXTS = 256
"""Texts taken from the shipped corpus, evenly spread; a file of the user's is taken whole."""
GENERATED = 32
SEED = 7919


@dataclass(frozen=True, kw_only=True)
class SampleSet:
    """Inputs by which a candidate is judged."""

    count: int
    about: str
    """Description of the samples, for people."""
    answer: Callable[[OriginalModel, int], list[Answer]]
    """Answers to the first so many samples, each alone. Raises ``TrbError``."""
    batch: Callable[[int], Feeds]
    """Inputs of a run of that many rows."""
    singles: Callable[[int], list[Feeds]]
    """Inputs of runs of one row, to calibrate with."""
    ask: Callable[[OriginalModel, Example], Answer] | None = None
    """The answer to other texts than these; None for a model that takes no texts. Raises ``TrbError``."""

    def answers(self, model: OriginalModel) -> list[Answer]:
        """Answers to all samples, each alone."""
        return self.answer(model, self.count)


def of(requested: Requested, file: Path | None) -> SampleSet:
    """The samples of this model. Raises ``TrbError`` if there are none of its kind."""
    if requested.kind is Kind.TEXT:
        return _texts(requested, file)
    if requested.kind is Kind.IMAGE_AND_TEXT:
        raise TrbError(
            Code.USAGE,
            "trb optimize does not take models of images and texts together",
            where=str(requested.request.source.path),
            remedy="optimize the towers before they are joined, or serve the model as it is",
        )
    if file is not None:
        raise TrbError(
            Code.USAGE,
            "--samples holds texts, and this model takes none",
            where=str(file),
            remedy="leave it out: shipped images, sounds or generated numbers are taken",
        )
    if requested.kind is Kind.TENSOR:
        return _tensors(requested.request.source)
    return _files(requested)


def source_of(source: Source, path: Path) -> Source:
    """Another file of the same model."""
    read = source.skeleton.adapt(skeleton.read(path))
    return replace(source, skeleton=read, signature=reader.signature(read), checksums={})


def _texts(requested: Requested, file: Path | None) -> SampleSet:
    request = requested.request
    source, task = request.source, request.task
    prepared = text_plan.prepare(request)
    settings = text_plan.recording_settings(prepared)
    tokenizer = text.library(source)
    encoded = [
        (example, row_group)
        for example in examples(task, file)
        if (row_group := text.encoded(task, tokenizer, example, settings.max_length)) is not None
    ]
    fitting, rows = [example for example, _ in encoded], [row_group for _, row_group in encoded]
    if not rows:
        raise TrbError(
            Code.USAGE,
            "none of the samples fits into the tokens that the model takes",
            where=str(file or source.path),
            remedy="give shorter texts with --samples FILE",
        )
    by_length = sorted((row for several in rows for row in several), key=lambda row: len(row["input_ids"]))

    def answer(model: OriginalModel, most: int) -> list[Answer]:
        runs = (text.run_one(model, source, task, tokenizer, example, settings) for example in fitting[:most])
        return [text.answer_of(task, run) for run in runs if run is not None]

    def ask(model: OriginalModel, example: Example) -> Answer:
        run = text.run_one(model, source, task, tokenizer, example, settings)
        if run is None:
            raise TrbError(
                Code.USAGE,
                "a labelled example does not fit into the tokens that the model takes",
                where=shorten(" ".join(next(iter(example.values()))), 60),
                remedy="shorten it, or take it out of the file of --labelled",
            )
        return text.answer_of(task, run)

    def batch(size: int) -> Feeds:
        # Around the median, where most texts are.
        first = max(0, len(by_length) // 2 - size // 2)
        taken = by_length[first : first + size]
        taken = [taken[number % len(taken)] for number in range(size)]
        return text.feeds(source, text.tensors(taken, settings))

    def singles(count: int) -> list[Feeds]:
        step = max(1, len(by_length) // count)
        return [text.feeds(source, text.tensors([row], settings)) for row in by_length[::step][:count]]

    about = str(file) if file else "shipped corpus of several languages"
    return SampleSet(count=len(rows), about=about, answer=answer, batch=batch, singles=singles, ask=ask)


def examples(task: TaskPlan, file: Path | None) -> list[Example]:
    """Texts of a file, or of the shipped corpus, as the inputs of this task."""
    lines = corpus.corpus(file)
    if file is None:
        lines = tuple(lines[number * len(lines) // TEXTS] for number in range(TEXTS))
    return of_lines(task, lines, "--samples")


def _files(requested: Requested) -> SampleSet:
    """Shipped images or sounds; images mirrored, too."""
    request = requested.request
    source, task = request.source, request.task
    prepared: Any = KINDS[requested.kind].prepare(request)
    if requested.kind is Kind.IMAGE:
        shipped = image.given_images(prepared.spec, prepared.layout)
        columns = -2 if prepared.layout == "NHWC" else -1
        values = [*shipped.values, *(np.flip(value, columns) for value in shipped.values)]
        sizes, about = np.concatenate([shipped.sizes, shipped.sizes]), "shipped images, also mirrored"
    else:
        shipped = audio.given_sounds(prepared.spec)
        values = [*shipped.values, *(value[..., ::-1] for value in shipped.values)]
        sizes, about = np.concatenate([shipped.sizes, shipped.sizes]), "shipped sounds, also backwards"
    spec = source.signature.inputs[0]

    def answer(model: OriginalModel, most: int) -> list[Answer]:
        return [
            media.answer_of(task, media.run(model, source, value[None], sizes[row : row + 1]))
            for row, value in enumerate(values[:most])
        ]

    def batch(size: int) -> Feeds:
        alike = [value for value in values if value.shape == values[0].shape]
        return {spec.name: np.stack([alike[n % len(alike)] for n in range(size)]).astype(spec.dtype.numpy)}

    def singles(count: int) -> list[Feeds]:
        return [{spec.name: value[None].astype(spec.dtype.numpy)} for value in values[:count]]

    return SampleSet(count=len(values), about=about, answer=answer, batch=batch, singles=singles)


def _tensors(source: Source) -> SampleSet:
    """Generated numbers of the size that the model takes."""
    specs = source.signature.inputs

    def feeds(size: AxisSizes, seed: int) -> Feeds:
        tensors = golden_tensor.generated(specs, size, SEED * (seed + 1))
        return {name: golden_tensor.feed(tensor) for name, tensor in tensors.items()}

    taken: list[AxisSizes] = []

    def size_of(model: OriginalModel) -> AxisSizes:
        for size in () if taken else input_sizes.tries(source):
            try:
                model.run(None, feeds(size, 0))
            except TrbError:
                raise
            except Exception:
                continue
            taken.append(size)
            break
        if not taken:
            raise TrbError(
                Code.GOLDEN_FAILED,
                "the model refuses generated inputs, so nothing can be compared",
                where=str(source.path),
                remedy="trb optimize needs a model that takes inputs of any numbers",
            )
        return taken[0]

    def answer(model: OriginalModel, most: int) -> list[Answer]:
        size, names = size_of(model), [spec.name for spec in source.signature.outputs]
        return [
            dict(zip(names, map(np.asarray, model.run(None, feeds(size, seed))), strict=True))
            for seed in range(most)
        ]

    def batch(size: int) -> Feeds:
        rows = [feeds(taken[0], seed % GENERATED) for seed in range(size)]
        if size == 1 or not source.signature.batch.possible:
            return rows[0]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def singles(count: int) -> list[Feeds]:
        return [feeds(taken[0], seed) for seed in range(min(count, GENERATED))]

    return SampleSet(count=GENERATED, about="generated numbers", answer=answer, batch=batch, singles=singles)
