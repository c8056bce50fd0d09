"""Composition of models: the models that an ensemble runs, directly or through others, and how often.

``steps_of`` gives the names of a model's steps, once for each step that calls it: ``Repository.steps_of``, or
a question to a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

StepsOf = Callable[[str], Sequence[str]]


def members(names: Iterable[str], steps_of: StepsOf) -> tuple[str, ...]:
    """The models and all their composing models, nearest first, each once; cycles are allowed."""
    seen: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in seen:
            seen[name] = None
            waiting += steps_of(name)
    return tuple(seen)


def composing(name: str, steps_of: StepsOf) -> frozenset[str]:
    """The composing models of an ensemble, without itself."""
    return frozenset(members((name,), steps_of)) - {name}


def needing(name: str, among: Iterable[str], steps_of: StepsOf) -> tuple[str, ...]:
    """The models of ``among`` that run ``name`` as a step, directly or through another ensemble."""
    return tuple(other for other in among if name in composing(other, steps_of))


def outermost(names: Iterable[str], steps_of: StepsOf) -> tuple[str, ...]:
    """The models that clients are meant to call: those that are not steps of another."""
    listed = tuple(names)
    inner = {step for name in listed for step in steps_of(name)}
    return tuple(name for name in listed if name not in inner)


def executions(name: str, steps_of: StepsOf) -> Counter[str]:
    """How often one request to ``name`` runs each model, ``name`` included; a cycle is not followed."""
    counts: Counter[str] = Counter()

    def count(model: str, times: int, above: frozenset[str]) -> None:
        counts[model] += times
        if model not in above:
            for step, number in Counter(steps_of(model)).items():
                count(step, times * number, above | {model})

    count(name, 1, frozenset())
    return counts
