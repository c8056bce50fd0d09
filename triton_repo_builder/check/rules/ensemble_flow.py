"""Streams of answers (decoupled models) in an ensemble."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding


def check(context: ModelContext) -> Iterator[Finding]:
    """The last part of ValidateEnsembleConfig in core's ensemble_utils.cc, and what follows from it."""
    graph = context.repo.graph_of_steps
    if not context.ensemble or not graph.decoupled(context.name):
        return
    if context.config.raw.get("response_cache", {}).get("enable"):
        message = (
            f"Response Cache does not currently support model {context.name} with 'decoupled' transaction "
            "policy. Please disable the response cache."
        )
        yield context.finding("cache-unsupported", message, "response_cache")
    steps = context.messages("ensemble_scheduling", "step")
    streams = [graph.decoupled(str(step.get("model_name", ""))) for step in steps]
    met = _meeting(context, steps, streams)
    if met is not None:
        outputs = {str(item.get("name", "")) for item in context.messages("output")}
        joined = outputs & {*steps[met].get("output_map", {}).values()}
        # The server names the model that it has the tensor from.
        name = context.name if joined else steps[met].get("model_name", "")
        message = (
            f"in ensemble {context.name}, step of model '{name}' receives inputs originated from different "
            "decoupled models"
        )
        yield context.finding("ensemble-decoupled", message, "ensemble_scheduling", "step", met)


def _meeting(
    context: ModelContext, steps: Sequence[Mapping[str, Any]], streams: Sequence[bool]
) -> int | None:
    """The first step with inputs of different streams; a stream belongs to the step that began it."""
    stream = {str(item.get("name", "")): 0 for item in context.messages("input")}
    readers: dict[str, list[int]] = {}
    missing = [set(step.get("input_map", {}).values()) for step in steps]
    for index, names in enumerate(missing):
        for name in names:
            readers.setdefault(name, []).append(index)
    waiting = deque(stream)
    while waiting:
        name = waiting.popleft()
        for index in readers.get(name, ()):
            missing[index].discard(name)
            if missing[index]:
                continue
            origins = {stream[read] for read in steps[index].get("input_map", {}).values()}
            if len(origins) > 1:
                return index
            origin = index + 1 if streams[index] else origins.pop()
            for written in steps[index].get("output_map", {}).values():
                if written not in stream:
                    stream[written] = origin
                    waiting.append(written)
    outputs = {
        stream[name] for item in context.messages("output") if (name := item.get("name", "")) in stream
    }
    return _last_writer(context, steps) if len(outputs) > 1 else None


def _last_writer(context: ModelContext, steps: Sequence[Mapping[str, Any]]) -> int:
    outputs = {str(item.get("name", "")) for item in context.messages("output")}
    return max(i for i, step in enumerate(steps) if outputs & {*step.get("output_map", {}).values()})
