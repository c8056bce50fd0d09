"""Results of a tune run, as frozen values; ``to_json`` is the schema of docs/tune.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from triton_repo_builder.measure.capacity.service import Service
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.tune.factors import DEFAULT, Value

SCHEMA = 1
MEASURED, PRUNED, UNMET, FAILED = "measured", "pruned", "unmet", "failed"
"""Status of a trial: it has a capacity, was given up, holds at no rate, or could not be measured."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One setting."""

    number: int
    name: str
    """Differences from the default."""
    setting: Mapping[str, Value]
    status: str
    capacity: float
    """Requests per second at which the objective holds; 0 if there is none."""
    latency_ms: float | None
    """The objective's percentile at that rate."""
    saturation: float
    """Requests per second that are answered at all."""
    reachable: float
    """Upper bound of the capacity of a pruned trial."""
    reason: str
    bottleneck: str
    rows_per_execution: float | None
    overhead: float
    """Seconds beside measuring: loading models, preparing requests, starting clients."""
    seconds: float

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Trial:
        return cls(**document)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A finalist or the default, measured again in alternation with the others."""

    name: str
    setting: Mapping[str, Value]
    capacity: float
    """Median of the rounds."""
    capacities: tuple[float, ...]
    latency_ms: float | None
    ratio: float | None
    """Median over the default's, round by round; None without a default that holds the objective."""
    lowest: float | None
    highest: float | None
    bottleneck: str


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Gain by one factor of the chosen setting: capacity over the capacity with the factor's default."""

    factor: str
    before: str
    after: str
    gain: float | None
    """None if it was not measured."""
    at_least: bool = False
    """Whether the setting without it was pruned, so that the gain may be larger."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One run."""

    command: str
    started: str
    seconds: float
    endpoint: str
    objective: Objective
    rps: float | None
    budget: float
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    space: Mapping[str, Sequence[Value]]
    trials: tuple[Trial, ...]
    compared: tuple[Compared, ...]
    """The default first; empty if nothing was proven."""
    chosen: str
    setting: Mapping[str, Value]
    better: bool
    """Whether the chosen setting is better than the default in every round."""
    gains: tuple[Gain, ...]
    service: Service | None
    notes: tuple[str, ...]

    @property
    def front(self) -> tuple[Trial, ...]:
        """Trials than which no other has both more capacity and less latency, by capacity."""
        measured = [trial for trial in self.trials if trial.status == MEASURED]
        ordered = sorted(measured, key=lambda trial: (-trial.capacity, _latency(trial)))
        front: list[Trial] = []
        for trial in ordered:
            if not front or _latency(trial) < _latency(front[-1]):
                front.append(trial)
        return tuple(front)

    @property
    def default(self) -> Trial | None:
        """The default's result; None before it was measured."""
        return next((trial for trial in self.trials if trial.name == DEFAULT), None)

    @property
    def best(self) -> Trial | None:
        """The trial with the largest capacity, proven or not."""
        measured = [trial for trial in self.trials if trial.status == MEASURED]
        return max(measured, key=lambda trial: trial.capacity, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        document = asdict(self)
        document["service"] = self.service.to_json() if self.service else None
        return {"schema": SCHEMA, **document, "front": [trial.number for trial in self.front]}


def _latency(trial: Trial) -> float:
    return math.inf if trial.latency_ms is None else trial.latency_ms
