"""Ensembles by themselves: their fields, and whether their tensors connect."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triton_repo_builder.check import backends
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding

CALLBACK_THREADS = 8
"""ENSEMBLE_CB_POOL_SIZE in core's constants.h: threads that take the answers of all ensembles' steps."""
CALLBACK_WAIT = 300
"""kMutexTimeoutSeconds there: seconds after which a waiting step goes on."""


def check(context: ModelContext) -> Iterator[Finding]:
    """Errors that the server reports before it reads the models of the steps."""
    if not context.ensemble:
        return
    yield from _declaration(context)
    yield from _forbidden(context)
    steps = context.messages("ensemble_scheduling", "step")
    if not context.config.has("ensemble_scheduling"):
        message = f"ensemble scheduling must be set for ensemble {context.name} whose platform is ensemble"
        yield context.finding("ensemble-scheduling", message, "platform")
    elif not steps:
        message = f"must specify 'step' for ensemble '{context.name}'"
        yield context.finding("ensemble-scheduling", message, "ensemble_scheduling")
    else:
        yield from _steps(context, steps)
        yield from _limit(context)
        yield from _wiring(context, Wiring.of(context))


def _declaration(context: ModelContext) -> Iterator[Finding]:
    platform, backend = context.config.platform, context.config.backend
    message = ""
    if platform == "ensemble" and backend:
        message = f"Ensemble model '{context.name}' must have platform type 'ensemble' and empty backend type"
    elif platform != "ensemble" and context.backend:
        message = (
            f"ensemble scheduling cannot be set for model '{context.name}' whose platform is not ensemble"
        )
    elif not platform:
        message = (
            f"Invalid model name: Could not determine backend for model '{context.name}' with no backend in "
            f"model configuration. Expected model name of the form 'model.<backend_name>'."
        )
    if message:
        yield context.finding("ensemble-platform", message, "backend" if backend else "platform")
    elif context.config.default_model_filename in backends.FILES:
        message = f"Ensemble model '{context.name}' must have platform type 'ensemble' and empty backend type"
        remedy = "drop default_model_filename: the server takes the file's backend for the ensemble's"
        yield context.finding("ensemble-platform", message, "default_model_filename", remedy=remedy)


def _forbidden(context: ModelContext) -> Iterator[Finding]:
    for field, message in (
        ("instance_group", f"instance group should not be specified for ensemble '{context.name}'"),
        ("optimization", f"optimization should not be specified for ensemble '{context.name}'"),
        ("model_warmup", f"model_warmup can not be specified for ensemble '{context.name}'"),
    ):
        if context.config.has(field):
            yield context.finding("ensemble-forbidden", message, field)


def _steps(context: ModelContext, steps: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for index, step in enumerate(steps):
        for field in ("model_name", "input_map", "output_map"):
            if not step.get(field):
                message = f"must specify '{field}' in step {index} of ensemble '{context.name}'"
                yield context.finding("ensemble-scheduling", message, "ensemble_scheduling", "step", index)


def _limit(context: ModelContext) -> Iterator[Finding]:
    """The limit of requests in a step, for which the server's few threads wait: ``ScheduleSteps``."""
    limit = int(context.config.raw.get("ensemble_scheduling", {}).get("max_inflight_requests") or 0)
    wiring = Wiring.of(context)
    chained = any(name in wiring.written for names in wiring.reads for name in names)
    if "shared_inflight_limit" in context.release.features and 0 < limit <= CALLBACK_THREADS and chained:
        yield context.finding(
            "ensemble-inflight",
            f"max_inflight_requests is {limit}: a step that waits for room holds one of the "
            f"{CALLBACK_THREADS} threads that would make room, and with all of them held nothing moves for "
            f"{CALLBACK_WAIT} seconds",
            "ensemble_scheduling",
            "max_inflight_requests",
        )


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Tensors of the ensemble that each step writes and reads."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reads: tuple[tuple[str, ...], ...]
    """Per step, the ensemble tensors in its input_map."""
    writes: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, context: ModelContext) -> Wiring:
        """From the maps of config.pbtxt."""
        steps = context.messages("ensemble_scheduling", "step")
        return cls(
            inputs=tuple(str(item.get("name", "")) for item in context.messages("input")),
            outputs=tuple(str(item.get("name", "")) for item in context.messages("output")),
            reads=tuple(tuple(step.get("input_map", {}).values()) for step in steps),
            writes=tuple(tuple(step.get("output_map", {}).values()) for step in steps),
        )

    @property
    def read(self) -> set[str]:
        """Every tensor that some step reads."""
        return {name for names in self.reads for name in names}

    @property
    def written(self) -> set[str]:
        """Every tensor that some step writes."""
        return {name for names in self.writes for name in names}

    def ready(self) -> set[str]:
        """Tensors that receive a value if every step runs as soon as its inputs exist."""
        readers: dict[str, list[int]] = {}
        missing = [set(names) for names in self.reads]
        for step, names in enumerate(missing):
            for name in names:
                readers.setdefault(name, []).append(step)
        waiting = [
            *self.inputs,
            *(name for step, names in enumerate(missing) if not names for name in self.writes[step]),
        ]
        ready: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in ready:
                continue
            ready.add(name)
            for step in readers.get(name, ()):
                missing[step].discard(name)
                if not missing[step]:
                    waiting += self.writes[step]
        return ready

    def needed(self, name: str) -> list[str]:
        """The tensor and all tensors that it depends on, nearest first."""
        needed = {name: None}
        waiting = deque([name])
        while waiting:
            for step in self.writers.get(waiting.popleft(), ()):
                new = [other for other in self.reads[step] if other not in needed]
                needed.update(dict.fromkeys(new))
                waiting += new
        return [*needed]

    @cached_property
    def writers(self) -> dict[str, list[int]]:
        """The steps that write each tensor."""
        return _steps_of(self.writes)

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """The steps that read each tensor."""
        return _steps_of(self.reads)


def _wiring(context: ModelContext, wiring: Wiring) -> Iterator[Finding]:
    tensors = wiring.read | wiring.written
    for role, names in (("input", wiring.inputs), ("output", wiring.outputs)):
        for index, name in enumerate(names):
            if name and name not in tensors:
                message = f"ensemble {role} '{name}' for ensemble {context.name}' is not used"
                yield context.finding("ensemble-unused", message, role, index)
    yield from _twice(context, wiring)
    for name in sorted(wiring.written - wiring.read - set(wiring.outputs)):
        message = f"ensemble tensor '{name}' is unused in ensemble '{context.name}'"
        yield context.finding("ensemble-unused", message, *_step(wiring.writers, name))
    yield from _unwritten(context, wiring)


def _twice(context: ModelContext, wiring: Wiring) -> Iterator[Finding]:
    seen = set(wiring.inputs)
    for index, names in enumerate(wiring.writes):
        for name in names:
            if name in seen:
                message = (
                    f"ensemble tensor '{name}' can appear in an output map only once for ensemble "
                    f"'{context.name}' step {index}"
                )
                yield context.finding("ensemble-written-twice", message, "ensemble_scheduling", "step", index)
            seen.add(name)


def _unwritten(context: ModelContext, wiring: Wiring) -> Iterator[Finding]:
    ready = wiring.ready()
    loose = wiring.read - wiring.written - set(wiring.inputs)
    reported: set[str] = set()
    for index, output in enumerate(wiring.outputs):
        if output in ready or output not in wiring.written | wiring.read:
            continue
        needed = [name for name in wiring.needed(output) if name not in ready]
        culprit = next((name for name in needed if name in loose), needed[-1])
        reported.add(culprit)
        message = (
            f"output '{output}' for ensemble '{context.name}' is not written: at least one of its depending "
            f"tensors, '{culprit}', is not connected"
        )
        yield context.finding("ensemble-unconnected", message, "output", index)
    for name in sorted(loose - reported):
        message = f"ensemble tensor '{name}' is read by a step and nothing writes it"
        yield context.finding("ensemble-unconnected", message, *_step(wiring.readers, name))


def _steps_of(maps: tuple[tuple[str, ...], ...]) -> dict[str, list[int]]:
    steps: dict[str, list[int]] = {}
    for step, names in enumerate(maps):
        for name in names:
            steps.setdefault(name, []).append(step)
    return steps


def _step(steps: Mapping[str, Sequence[int]], name: str) -> tuple[str | int, ...]:
    """The path of the last step whose map has that tensor."""
    return ("ensemble_scheduling", "step", steps[name][-1])
