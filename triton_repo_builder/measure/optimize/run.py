"""The steps one after the other, each measured and held against the gate; nothing is written here."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from triton_repo_builder.base import hardware
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.endpoint.plan import defaults
from triton_repo_builder.measure.optimize import accuracy, labelled, recipe, samples, search, speed, steps
from triton_repo_builder.measure.optimize.accuracy import Accuracy
from triton_repo_builder.measure.optimize.recipe import Step
from triton_repo_builder.measure.optimize.samples import Samples
from triton_repo_builder.measure.optimize.search import Judged, Progress
from triton_repo_builder.measure.optimize.speed import Speed
from triton_repo_builder.measure.options import OptimizeOptions
from triton_repo_builder.model.graph import isolated, memory, prune, weights
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import DIFFERENCE, PER_ROW, RECIPE
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.produce import limits, request

QUICK = 16
"""Samples that show how sensitive a product is."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One line of the report."""

    step: str
    bytes: int
    accuracy: Accuracy
    speed: Speed
    failure: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)
    """What labelled examples give, by measure."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Everything that was measured. ``path`` is the last file, in the caller's folder."""

    source: Source
    task: str
    samples: Samples
    lines: tuple[Measured, ...]
    """The original first."""
    steps: tuple[Step, ...]
    path: Path
    max_drop: float
    labelled: int = 0
    """Number of labelled examples."""
    zeros: prune.Found = field(default_factory=prune.Found)
    """What is zero in the original, if that was looked for."""

    @property
    def failure(self) -> str:
        """Why it is refused; empty if every step passes."""
        return next((line.failure for line in self.lines if line.failure), "")


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
    asked = request.requested(options, machine=machine)
    source, task = asked.request.source, asked.request.task
    _check_device(planned, options, machine, source)
    given = samples.of(asked, settings.samples)
    examples = labelled.read(settings.labelled, task) if settings.labelled else None
    progress(f"answers of the original to {given.count} samples", 0, 1)
    baseline = speed.load(source)
    expected = given.answers(baseline)
    batches = source.signature.batch.possible
    own = speed.measure(baseline, baseline, given, batch=batches)
    own = Speed(latency=own.latency, original=own.latency, others=own.others)
    lines = [
        Measured(
            step="original",
            bytes=source.signature.bytes,
            accuracy=accuracy.EXACT,
            speed=own,
            quality=labelled.measured(examples, given, baseline),
        )
    ]
    before, done = source, list[Step]()

    def make(step: Step, base: Source, name: str) -> Source:
        path = folder / name
        _release(source, base)
        steps.apply(step, base.path, path, given)
        _release(source, base)
        return samples.source_of(source, path)

    zeros = prune.find(source.skeleton) if not (settings.steps or settings.recipe) else prune.Found()
    first = (Step(name=recipe.PRUNE),) if zeros.any else ()
    for number, step in enumerate((*first, *planned)):
        base = before

        def judge(step: Step, base: Source = base, number: int = number) -> Judged:
            made = make(step, base, f"{number}-{step.name}-{step.how}-{len(step.excluded)}.onnx")
            limits.check_release(made, asked.request.release)
            if not defaults.on_gpu(options, machine):
                limits.check_operators(made, asked.request.release)
            try:
                candidate = speed.load(made)
            except TrbError as error:
                raise steps.nothing(
                    step, base.path, f"what it gives does not load: {error.message}"
                ) from None
            _release(made)
            found = accuracy.compare(task.name, expected, given.answers(candidate))
            # Rows that change each other are served one by one.
            apart = made.signature.quantised and step.how != PER_ROW
            taken = speed.measure(baseline, candidate, given, batch=batches, apart=apart)
            failure = found.failure(settings.max_drop)
            good = labelled.measured(examples, given, candidate)
            return Judged(
                step=step, path=made.path, accuracy=found, speed=taken, failure=failure, quality=good
            )

        def quick(step: Step, base: Source = base) -> float:
            made = make(step, base, "quick.onnx")
            answers = given.answer(speed.load(made), QUICK)
            return 1 - accuracy.compare(task.name, expected[: len(answers)], answers).mean

        progress(str(step), 0, 1)
        try:
            if step.name == recipe.INT8 and not step.how:
                trials = search.Trials(judge=judge, quick=quick, progress=progress, deadline=deadline)
                found = search.int8(base, step, trials, fastest=settings.fastest)
            else:
                found = judge(step)
        except TrbError as error:
            # Not the file under way, which is gone when somebody reads this.
            error.where = error.where.replace(str(base.path), str(source.path))
            raise
        before = samples.source_of(source, found.path)
        done.append(found.step)
        lines.append(
            Measured(
                step=str(found.step),
                bytes=before.signature.bytes,
                accuracy=found.accuracy,
                speed=found.speed,
                failure=found.failure,
                quality=found.quality,
            )
        )
        if found.failure:
            break
    _release(source)
    weights.note(before.path, _facts(done, lines[-1].accuracy))
    return Outcome(
        source=source,
        task=task.name,
        samples=given,
        lines=tuple(lines),
        steps=tuple(done),
        path=before.path,
        max_drop=settings.max_drop,
        labelled=examples.count if examples else 0,
        zeros=zeros,
    )


def _release(*sources: Source) -> None:
    """Give back the pages of these models' weights, here and where they run."""
    weights_of = [path.resolve() for source in sources for path in source.weights]
    memory.drop(weights_of)
    isolated.ask("drop", weights_of)


def _facts(done: Sequence[Step], last: Accuracy) -> dict[str, str]:
    """What the file says of itself; ``trb build`` reads it."""
    facts = {RECIPE: json.dumps([step.as_json() for step in done])}
    if any(step.name == recipe.INT8 for step in done):
        facts[DIFFERENCE] = f"{last.difference:.3g}"
    return facts


def _check_device(wanted: Sequence[Step], options: BuildOptions, machine: Hardware, source: Source) -> None:
    if any(step.name == recipe.FP16 for step in wanted) and not defaults.on_gpu(options, machine):
        raise TrbError(
            Code.USAGE,
            "fp16 is for GPUs: a CPU has no kernels for it, and ONNX Runtime would convert to FP32 and back "
            "around every operator, which is slower",
            where=str(source.path),
            remedy="use int8, or --device gpu if the model is served on one",
        )
