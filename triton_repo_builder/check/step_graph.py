"""Ensembles and their steps as one graph: cycles, and models with several answers for a request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from triton_repo_builder.repository import Model, Repository


@dataclass(frozen=True, kw_only=True)
class StepGraph:
    """Each query walks the repository once, however deep its ensembles are."""

    repository: Repository

    def last_of_cycle(self, name: str) -> str:
        """Last model of a path of steps that leads back to this model; "" without such a cycle."""
        circle = self._circles.get(name, frozenset())
        return next((other for other in self._callers.get(name, ()) if other in circle), "")

    def decoupled(self, name: str) -> bool:
        """Whether a model may answer a request several times; an ensemble as soon as one step does."""
        return name in self._decoupled

    @cached_property
    def _steps(self) -> dict[str, tuple[str, ...]]:
        names = {model.name for model in self.repository.models}
        return {
            model.name: tuple(dict.fromkeys(step for step in model.steps if step in names))
            for model in self.repository.models
        }

    @cached_property
    def _callers(self) -> dict[str, list[str]]:
        callers: dict[str, list[str]] = {}
        for name, steps in self._steps.items():
            for step in steps:
                callers.setdefault(step, []).append(name)
        return callers

    @cached_property
    def _order(self) -> list[str]:
        """Models in an order that puts each after its steps, if there is such an order."""
        order: list[str] = []
        seen: set[str] = set()
        for start in self._steps:
            way: list[tuple[str, Iterator[str]]] = []
            if start not in seen:
                seen.add(start)
                way.append((start, iter(self._steps[start])))
            while way:
                name, steps = way[-1]
                step = next((step for step in steps if step not in seen), None)
                if step is None:
                    order.append(name)
                    way.pop()
                else:
                    seen.add(step)
                    way.append((step, iter(self._steps[step])))
        return order

    @cached_property
    def _circles(self) -> dict[str, frozenset[str]]:
        """Models of the same cycle, by model (Kosaraju's algorithm)."""
        circles: dict[str, frozenset[str]] = {}
        seen: set[str] = set()
        for start in reversed(self._order):
            members: list[str] = []
            waiting = [start]
            while waiting:
                name = waiting.pop()
                if name not in seen:
                    seen.add(name)
                    members.append(name)
                    waiting += self._callers.get(name, ())
            if len(members) > 1 or start in self._steps[start]:
                circles.update(dict.fromkeys(members, frozenset(members)))
        return circles

    @cached_property
    def _decoupled(self) -> frozenset[str]:
        decoupled: set[str] = set()
        for name in self._order:
            model = self.repository.model(name)
            if model is not None and (any(step in decoupled for step in self._steps[name]) or _stated(model)):
                decoupled.add(name)
        return frozenset(decoupled)


def _stated(model: Model) -> bool:
    """An ensemble's own setting is overwritten by the server."""
    return model.config.decoupled and not model.config.has("ensemble_scheduling")
