"""The fastest int8 that passes the gate: ways first, then products that stay in float."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.measure.optimize import steps
from triton_repo_builder.measure.optimize.accuracy import Accuracy
from triton_repo_builder.measure.optimize.recipe import PER_CHANNEL, STATIC, RecipeStep
from triton_repo_builder.measure.optimize.speed import Speed
from triton_repo_builder.model.graph import per_row
from triton_repo_builder.model.read import skeleton
from triton_repo_builder.model.read.signature import PER_ROW
from triton_repo_builder.model.read.source import Source

DONE = {"MatMulInteger", "ConvInteger", "QLinearConv", "QuantizeLinear", "DynamicQuantizeLinear"}
GROUPS = 12
"""Groups of neighbouring nodes of a static graph, whose sensitivity is measured."""
SHARES = (0.125, 0.25, 0.5)
"""Shares of the products that stay in float, the most sensitive first, until the gate passes."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A candidate with its measurements."""

    step: RecipeStep
    path: Path
    accuracy: Accuracy
    speed: Speed
    failure: str
    """Reason for a refusal; empty if it passes."""
    quality: Mapping[str, float] = field(default_factory=dict)
    """Results on labelled examples, by measure."""


Judge = Callable[[RecipeStep], Judged]
Quick = Callable[[RecipeStep], float]
"""Loss of a step on few samples."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Callbacks that measure candidates, and a deadline."""

    judge: Judge
    quick: Quick
    progress: Progress
    deadline: float
    """``time.monotonic()`` after which nothing new is begun."""


def int8(source: Source, step: RecipeStep, trials: Trials, *, fastest: bool) -> Judged:
    """The fastest that passes (or the first), else the most accurate with its failure.

    Raises ``TrbError`` if none can be made.
    """
    ways = [STATIC] if "Conv" in source.signature.operators else []
    ways += [PER_ROW, PER_CHANNEL] if per_row.products(source.skeleton) else []
    judged: list[Judged] = []
    problem: TrbError | None = None
    for number, way in enumerate(ways):
        if judged and (time.monotonic() > trials.deadline or (not fastest and not judged[-1].failure)):
            break
        trials.progress(f"int8 {way}", number, len(ways))
        try:
            judged.append(trials.judge(replace(step, how=way)))
        except TrbError as error:
            problem = problem or error
    if not judged:
        raise problem or nothing_to_quantise(source, step)
    passed = [candidate for candidate in judged if not candidate.failure]
    for way in (way for way in (STATIC, PER_ROW) if way in ways and not passed):
        chosen = replace(step, how=way)
        tried = _with_floats(_units(source, way), chosen, trials)
        judged += tried
        passed = [candidate for candidate in tried if not candidate.failure]
    if passed:
        return max(passed, key=lambda candidate: candidate.speed.ratio)
    return max(judged, key=lambda candidate: candidate.accuracy.mean)


def nothing_to_quantise(source: Source, step: RecipeStep) -> TrbError:
    """A model without convolutions and without large constant matrices."""
    if source.signature.operators & DONE:
        return steps.nothing(step, source.path, "the model is quantised already")
    reason = "the graph has no convolution and no large matrix that is constant"
    return steps.nothing(step, source.path, reason)


def _units(source: Source, way: str) -> list[tuple[str, ...]]:
    """Groups that stay in float together: every product alone, or neighbours of a static graph.

    A static graph is calibrated again for every measurement, so it has ``GROUPS`` of them at most.
    """
    if way == PER_ROW:
        return [(product,) for product in per_row.products(skeleton.read(source.path))]
    nodes = steps.quantisable(source.path)
    size = max(1, -(-len(nodes) // GROUPS))
    return [nodes[first : first + size] for first in range(0, len(nodes), size)]


def _with_floats(units: Sequence[tuple[str, ...]], step: RecipeStep, trials: Trials) -> list[Judged]:
    """More and more of the products in float, the most sensitive first, until one passes."""
    losses: dict[tuple[str, ...], float] = {}
    # Half of the remaining time is for the candidates themselves.
    end = time.monotonic() + (trials.deadline - time.monotonic()) / 2
    for number, unit in enumerate(units):
        if time.monotonic() > end:
            break
        trials.progress(f"sensitivity, int8 {step.how}", number, len(units))
        others = tuple(name for other in units if other != unit for name in other)
        losses[unit] = trials.quick(replace(step, excluded=others))
    tried: list[Judged] = []
    for share in SHARES:
        if time.monotonic() > trials.deadline or not losses:
            break
        count = max(1, round(share * len(units)))
        if count == len(units):
            break
        worst = sorted(losses, key=lambda unit: -losses[unit])[:count]
        kept = tuple(name for unit in units if unit in worst for name in unit)
        trials.progress(f"int8 {step.how} with {len(kept)} {step.unit} in float", len(tried), len(SHARES))
        tried.append(trials.judge(replace(step, excluded=kept)))
        if not tried[-1].failure:
            break
    return tried
