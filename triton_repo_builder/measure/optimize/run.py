"""The steps in order, each measured and checked against the gate; only the caller's folder is written."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from triton_repo_builder.base import hardware
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.endpoint.golden.original import OriginalModel
from triton_repo_builder.endpoint.plan import defaults
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest
from triton_repo_builder.measure.optimize import accuracy, labelled, recipe, samples, search, speed, steps
from triton_repo_builder.measure.optimize.accuracy import Accuracy, Answer
from triton_repo_builder.measure.optimize.labelled import Labelled
from triton_repo_builder.measure.optimize.recipe import RecipeStep
from triton_repo_builder.measure.optimize.samples import SampleSet
from triton_repo_builder.measure.optimize.search import Judged, Progress
from triton_repo_builder.measure.optimize.speed import Speed
from triton_repo_builder.measure.options import OptimizeOptions
from triton_repo_builder.model.graph import isolated, memory, prune, stored_weights, weights
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import DIFFERENCE, PER_ROW, RECIPE
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.produce import limits, request
from triton_repo_builder.produce.request import Requested

QUICK = 16
"""Number of samples that measure a product's sensitivity."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One line of the report."""

    step: str
    bytes: int
    accuracy: Accuracy
    speed: Speed
    failure: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)
    """Results on labelled examples, by measure."""

    @classmethod
    def of(cls, judged: Judged, source: Source) -> Measured:
        """The line of a step, of which ``source`` is the file."""
        return cls(
            step=str(judged.step),
            bytes=source.signature.bytes,
            accuracy=judged.accuracy,
            speed=judged.speed,
            failure=judged.failure,
            quality=judged.quality,
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All measurements. ``path`` is the last file, in the caller's folder."""

    source: Source
    task: str
    samples: SampleSet
    lines: tuple[Measured, ...]
    """The original first."""
    steps: tuple[RecipeStep, ...]
    path: Path
    max_drop: float
    labelled: int = 0
    """Number of labelled examples."""
    zeros: prune.ZeroParts = field(default_factory=prune.ZeroParts)
    """Zero heads and neurons of the original, if the search for them is on."""

    @property
    def failure(self) -> str:
        """Reason for a refusal; empty if every step passes."""
        return next((line.failure for line in self.lines if line.failure), "")


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """The original model with its answers, and how candidates are made and compared with it."""

    request: PlanRequest
    sample_set: SampleSet
    examples: Labelled | None
    max_drop: float
    folder: Path
    baseline: OriginalModel
    expected: Sequence[Answer]

    @classmethod
    def of(
        cls, requested: Requested, settings: OptimizeOptions, folder: Path, progress: Progress
    ) -> _Comparison:
        """Choose the samples and run the original on them. Raises ``TrbError``."""
        source, task = requested.request.source, requested.request.task
        sample_set = samples.of(requested, settings.samples)
        examples = labelled.read(settings.labelled, task) if settings.labelled else None
        progress(f"answers of the original to {sample_set.count} samples", 0, 1)
        baseline = speed.load(source)
        return cls(
            request=requested.request,
            sample_set=sample_set,
            examples=examples,
            max_drop=settings.max_drop,
            folder=folder,
            baseline=baseline,
            expected=sample_set.answers(baseline),
        )

    @property
    def _batches(self) -> bool:
        return self.request.source.signature.batch.possible

    def original(self) -> Measured:
        """The first line of the report: the original in turns with itself."""
        times = speed.measure(self.baseline, self.baseline, self.sample_set, batch=self._batches)
        return Measured(
            step="original",
            bytes=self.request.source.signature.bytes,
            accuracy=accuracy.EXACT,
            speed=Speed(latency=times.latency, original=times.latency, others=times.others),
            quality=labelled.measured(self.examples, self.sample_set, self.baseline),
        )

    def judge(self, base: Source, number: int, step: RecipeStep) -> Judged:
        """Make a step's file and measure it. Raises ``TrbError``."""
        changed = self._make(step, base, f"{number}-{step.name}-{step.how}-{len(step.excluded)}.onnx")
        limits.check_release(changed, self.request.release)
        if not defaults.on_gpu(self.request.options, self.request.machine):
            limits.check_operators(changed, self.request.release)
        try:
            candidate = speed.load(changed)
        except TrbError as error:
            raise steps.nothing(step, base.path, f"what it gives does not load: {error.message}") from None
        _release(changed)
        agreement = self._agreement(self.sample_set.answers(candidate))
        # Rows that change each other are served one by one.
        row_by_row = changed.signature.quantised and step.how != PER_ROW
        return Judged(
            step=step,
            path=changed.path,
            accuracy=agreement,
            speed=speed.measure(
                self.baseline, candidate, self.sample_set, batch=self._batches, row_by_row=row_by_row
            ),
            failure=agreement.failure(self.max_drop),
            quality=labelled.measured(self.examples, self.sample_set, candidate),
        )

    def quick(self, base: Source, step: RecipeStep) -> float:
        """The mean loss of a step over the first samples."""
        changed = self._make(step, base, "quick.onnx")
        return 1 - self._agreement(self.sample_set.answer(speed.load(changed), QUICK)).mean

    def _agreement(self, answers: Sequence[Answer]) -> Accuracy:
        return accuracy.compare(self.request.task.name, self.expected[: len(answers)], answers)

    def _make(self, step: RecipeStep, base: Source, name: str) -> Source:
        source, path = self.request.source, self.folder / name
        _release(source, base)
        steps.apply(step, base.path, path, self.sample_set)
        _release(source, base)
        return samples.source_of(source, path)


def optimize(
    options: BuildOptions,
    settings: OptimizeOptions,
    folder: Path,
    progress: Progress = lambda message, done, total: None,
    machine: Hardware | None = None,
) -> Outcome:
    """Make and measure each step in ``folder``, up to the first that fails the gate. Raises ``TrbError``."""
    planned = recipe.planned(settings)
    deadline = time.monotonic() + settings.budget
    machine = machine or hardware.here()
    progress("reading the model", 0, 1)
    requested = request.requested(options, machine=machine)
    source, task = requested.request.source, requested.request.task
    _check_device(planned, options, machine, source)
    comparison = _Comparison.of(requested, settings, folder, progress)
    lines = [comparison.original()]
    before, done = source, list[RecipeStep]()
    zeros = prune.find(source.skeleton) if not (settings.steps or settings.recipe) else prune.ZeroParts()
    first = (RecipeStep(name=recipe.PRUNE),) if zeros.any else ()
    for number, step in enumerate((*first, *planned)):
        base = _with_float_weights(before, folder) if step.name == recipe.INT8 else before

        judge, quick = partial(comparison.judge, base, number), partial(comparison.quick, base)
        progress(str(step), 0, 1)
        try:
            if step.name == recipe.INT8 and not step.how:
                trials = search.Trials(judge=judge, quick=quick, progress=progress, deadline=deadline)
                judged = search.int8(base, step, trials, fastest=settings.fastest)
            else:
                judged = judge(step)
        except TrbError as error:
            # Not the file under way, which is gone when somebody reads this.
            error.where = error.where.replace(str(base.path), str(source.path))
            raise
        if base is not before:
            for file in base.weights:
                file.unlink()
        before = samples.source_of(source, judged.path)
        done.append(judged.step)
        lines.append(Measured.of(judged, before))
        if judged.failure:
            break
    _release(source)
    weights.note(before.path, _facts(done, lines[-1].accuracy))
    return Outcome(
        source=source,
        task=task.name,
        samples=comparison.sample_set,
        lines=tuple(lines),
        steps=tuple(done),
        path=before.path,
        max_drop=settings.max_drop,
        labelled=comparison.examples.count if comparison.examples else 0,
        zeros=zeros,
    )


def _with_float_weights(source: Source, folder: Path) -> Source:
    """The model with float constants for weights that it stores as integers: what quantisers take."""
    path = folder / "floats.onnx"
    if not stored_weights.fold(skeleton.read(source.path), path):
        return source
    return samples.source_of(source, path)


def _release(*sources: Source) -> None:
    """Release the memory pages of these models' weights, here and in their processes."""
    weights_of = [path.resolve() for source in sources for path in source.weights]
    memory.drop(weights_of)
    isolated.ask("drop", weights_of)


def _facts(done: Sequence[RecipeStep], last: Accuracy) -> dict[str, str]:
    """Metadata of the written file, which ``trb build`` reads."""
    facts = {RECIPE: json.dumps([step.as_json() for step in done])}
    if any(step.name == recipe.INT8 for step in done):
        facts[DIFFERENCE] = f"{last.difference:.3g}"
    return facts


def _check_device(
    steps_to_run: Sequence[RecipeStep], options: BuildOptions, machine: Hardware, source: Source
) -> None:
    if any(step.name == recipe.FP16 for step in steps_to_run) and not defaults.on_gpu(options, machine):
        raise TrbError(
            Code.USAGE,
            "fp16 is for GPUs: a CPU has no kernels for it, and ONNX Runtime would convert to FP32 and back "
            "around every operator, which is slower",
            where=str(source.path),
            remedy="use int8, or --device gpu if the model is served on one",
        )
